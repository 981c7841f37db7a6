package badinput

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/internal/testaddr"
)

// exitVolume is EX_CONFIG: starting again changes nothing until somebody acts.
const exitVolume = 78

// refused fails unless the node ends with the exit code, and the reason on stderr and in the termination log.
func (n *node) refused(reason string, texts ...string) {
	n.Helper()
	if code := n.ends(); code != exitVolume {
		n.Errorf("the node ended with %d, want %d", code, exitVolume)
	}
	termination, err := os.ReadFile(n.path("termination"))
	if err != nil {
		n.Fatal(err)
	}
	line := string(termination)
	if !strings.HasPrefix(line, reason+": ") || strings.Count(line, "\n") != 1 {
		n.Errorf("the termination log says %q, want one line that begins with %s", line, reason)
	}
	for _, text := range texts {
		if !strings.Contains(line, text) {
			n.Errorf("the termination log says %q, without %q", line, text)
		}
	}
	n.says(strings.TrimSpace(line))
}

func TestEmptyVolumeWithoutAPermitStopsTheNodeAsVolumeLost(t *testing.T) {
	n := newNode(t)
	n.permit("")
	n.run()
	n.refused("VolumeLost", "is empty", directoryID, "must be replaced under a new directory id")
}

func TestWipedVolumeOfAUsedNodeStopsItAsVolumeLost(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kill()
	n.permit("") // as the operator withdraws it once the node is registered
	for _, dir := range []string{"data", "metadata"} {
		if err := os.RemoveAll(n.path(dir)); err != nil {
			t.Fatal(err)
		}
	}
	n.run()
	n.refused("VolumeLost")
}

func TestLostMetadataDirectoryOfAVoterStopsItAsVolumeLost(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kill()
	n.permit("")
	if err := os.RemoveAll(n.path("metadata/__cluster_metadata-0")); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.refused("VolumeLost", "must be removed and join again")
}

func TestVolumeOfAnotherIsRefusedForWhatDiffers(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kill()
	config, err := os.ReadFile(n.path("node.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args   []string
		config string
		reason string
	}{
		"another cluster":   {nil, strings.Replace(string(config), clusterID, otherID, 1), "WrongClusterId"},
		"another node":      {[]string{"--node-id=1"}, string(config), "WrongNodeId"},
		"another directory": {[]string{"--directory-id=" + otherID}, string(config), "WrongDirectoryId"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{T: t, dir: n.dir, controller: n.controller, internal: n.internal, client: n.client, http: n.http, output: n.output}
			n.write("node.yaml", test.config)
			n.run(test.args...)
			n.refused(test.reason, "mount the right volume")
		})
	}
	n.write("node.yaml", string(config))
	n.start() // nothing on it was touched
}

func TestVolumeOfALaterVersionIsRefusedAndNotTouched(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kill()
	var was []byte
	n.edit(n.path("data/meta.properties"), func(b []byte) []byte {
		was = bytes.Replace(b, []byte("version=1"), []byte("version=2"), 1)
		return was
	})
	n.run()
	n.refused("VolumeUnreadable", "its version is 2, this program knows 1", "run the version that wrote it, or a newer one")
	if got, err := os.ReadFile(n.path("data/meta.properties")); err != nil || !bytes.Equal(got, was) {
		t.Errorf("the file is %q, %v", got, err)
	}
}

func TestVolumeWithForeignFilesIsNotTouched(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.path("data"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.write("data/photo.jpg", "precious")
	n.run()
	n.refused("VolumeForeign", "photo.jpg", "mount the right volume")
	if got, err := os.ReadFile(n.path("data/photo.jpg")); err != nil || string(got) != "precious" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

func TestTwoProcessesDoNotShareAVolume(t *testing.T) {
	n := newNode(t)
	n.start()
	second := &node{T: t, dir: n.dir, controller: testaddr.Free(t), internal: testaddr.Free(t), client: testaddr.Free(t), http: testaddr.Free(t), output: n.output}
	second.run()
	if code := second.ends(); code == 0 {
		t.Errorf("the second process ended with %d", code)
	}
	n.says("is in use by another process")
	n.createTopic("orders", nil) // the first goes on
}

func TestWrongFlagsAndConfigurationAreNamedAllAtOnce(t *testing.T) {
	n := newNode(t)
	n.write("node.yaml", "clusterId: "+clusterID+"\nvoters: [{id: 0, directoryId: "+directoryID+", host: '', port: 0}]\n")
	n.run("--node-id=-1", "--roles=voter")
	if code := n.ends(); code != 2 {
		t.Errorf("the node ended with %d, want 2", code)
	}
	n.says("--node-id", "voters[0]")

	n.write("node.yaml", "clusterID: "+clusterID+"\nminIsr: 2\n")
	n.run()
	if code := n.ends(); code != 2 {
		t.Errorf("the node ended with %d, want 2", code)
	}
	n.says(`unknown field "minIsr"`)
}
