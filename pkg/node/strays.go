package node

import (
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// straySuffix marks the directories of replicas of a topic that metadata does not have, as Kafka marks them.
const straySuffix = "-stray"

// clearStrays looks, once the others are open, for the directories of partitions that were taken from this node while it
// was down (KAFKA-16209). What metadata has given to others is deleted. What it does not know at all is moved aside and
// deleted after a while: then somebody has had time to see that the metadata is not what it should be. A directory that
// does not say whose it is stays. broker.applying is held.
func (b *broker) clearStrays(image *metadata.Image) {
	if b.dir.offline() != nil {
		return // the others are not open
	}
	entries, err := b.dir.ReadDir(b.cfg.DataDir)
	if err != nil {
		b.logger.Error("the data directory can't be listed", "dir", b.cfg.DataDir, "error", err)
		return
	}
	known := map[string]bool{}
	b.eachReplica(func(r *replica) { known[filepath.Base(r.dir)] = true })
	var strays []removal
	for _, entry := range entries {
		if topic, id, ok := parseDoomed(entry.Name(), straySuffix); ok && entry.IsDir() {
			strays = append(strays, removal{name: entry.Name(), topic: topic, id: id, reason: topicDeleted})
			continue
		}
		topic, index, err := log.ParseDirName(entry.Name())
		dir := filepath.Join(b.cfg.DataDir, entry.Name())
		if err != nil || !entry.IsDir() || topic == ident.MetadataTopic || known[entry.Name()] || b.openings.underWay[dir] != nil {
			continue
		}
		if stray, ok := b.clearStray(image, dir, topic, index); ok {
			strays = append(strays, stray)
		}
	}
	b.removals.later(strays, b.cfg.Timing.StrayDelay)
}

// clearStray deals with the directory of a partition that is not open here. It returns one that is to be deleted later.
func (b *broker) clearStray(image *metadata.Image, dir, topic string, index int32) (stray removal, ok bool) {
	found, err := log.ReadPartitionMetadata(b.dir, dir)
	id := ident.TopicPartition{Topic: found, Index: index}
	if err != nil || b.isAssigned(image, id) {
		b.logger.Warn("a partition directory belongs to no replica of this node, and stays", "dir", dir, "error", err)
		return stray, false
	}
	b.checkpoints.forget(topic, index)
	if _, exists := image.TopicByID(found); !exists {
		stray, err = b.moveAside(topic, id)
		ok = err == nil
	} else {
		b.logger.Info("replica removed: it was given to other nodes while this one was down", "topic", topic, "index", index, "dir", dir)
		err = b.deleteDirectory(dir, topic, id, reassigned)
	}
	if err != nil {
		b.logger.Error("the directory of a removed replica stays", "dir", dir, "error", err)
	}
	return stray, ok
}

// moveAside renames the directory of a replica whose topic metadata does not have.
func (b *broker) moveAside(topic string, id ident.TopicPartition) (removal, error) {
	dir := filepath.Join(b.cfg.DataDir, log.DirName(topic, id.Index))
	name, err := b.doom(dir, id, straySuffix)
	if err == nil {
		b.logger.Warn("a directory of a topic that is gone is moved aside, to be deleted later", "dir", dir, "topicId", id.Topic, "to", name, "after", b.cfg.Timing.StrayDelay)
	}
	return removal{name: name, topic: topic, id: id, reason: topicDeleted}, err
}
