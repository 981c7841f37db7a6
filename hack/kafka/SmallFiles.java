import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/**
 * Reads the small files of data directories with the classes by which Apache Kafka itself reads them, and prints what
 * they say, one line an entry. Exits 1 when one can't be read.
 */
public class SmallFiles {
    public static void main(String[] args) throws Exception {
        boolean failed = false;
        for (String arg : args) {
            List<Path> files;
            try (Stream<Path> all = Files.walk(Path.of(arg))) {
                files = new ArrayList<>(all.filter(Files::isRegularFile).sorted(Comparator.naturalOrder()).toList());
            }
            for (Path file : files) {
                try {
                    for (String line : read(file.toFile())) {
                        System.out.println(file + ": " + line);
                    }
                } catch (Throwable t) {
                    System.out.println(file + ": UNREADABLE: " + t);
                    failed = true;
                }
            }
        }
        System.exit(failed ? 1 : 0);
    }

    static List<String> read(File file) throws Exception {
        List<String> lines = new ArrayList<>();
        LogDirFailureChannel channel = new LogDirFailureChannel(1);
        switch (file.getName()) {
            case "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint" ->
                new OffsetCheckpointFile(file, channel).read().forEach((partition, offset) -> lines.add(partition + " " + offset));
            case "leader-epoch-checkpoint" ->
                new LeaderEpochCheckpointFile(file, channel).read().forEach(entry -> lines.add(entry.epoch + " " + entry.startOffset));
            case "partition.metadata" -> {
                var read = new PartitionMetadataFile(file, channel).read();
                lines.add(read.version() + " " + read.topicId());
            }
            case ".kafka_cleanshutdown" -> {
                var epoch = new CleanShutdownFileHandler(file.getParent()).read();
                if (epoch.isEmpty()) {
                    throw new IllegalStateException("no broker epoch can be read");
                }
                lines.add(String.valueOf(epoch.getAsLong()));
            }
            case "meta.properties" -> {
                var read = new MetaProperties.Builder(PropertiesUtils.readPropertiesFile(file.getPath())).build();
                lines.add(read.clusterId().get() + " " + read.nodeId().getAsInt() + " " + read.directoryId().get());
            }
            case "quorum-state" -> {
                var read = new FileQuorumStateStore(file).readElectionState();
                lines.add(read.get().toString());
            }
            default -> {
            }
        }
        if (channel.hasOfflineLogDir(file.getParent())) {
            throw new IllegalStateException("Kafka would take the directory offline");
        }
        lines.sort(Comparator.naturalOrder());
        return lines;
    }
}
