package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/highwater-io/highwater/pkg/ident"
)

func validConfig() Config {
	return Config{
		NodeID: 3, DirectoryID: testUUID(9, 3), Voter: true, Data: true, DataDir: "/data", MetadataDir: "/metadata",
		ControllerListener: ":9093", InternalListener: ":9094", ExternalListener: ":9092", HTTPListener: ":9095",
		AdvertisedController: "n3:9093", AdvertisedInternal: "n3:9094", AdvertisedExternal: "[::1]:9092",
		Shared: SharedConfig{ClusterID: testUUID(1, 1), Voters: []VoterConfig{{ID: 3, DirectoryID: testUUID(9, 3), Host: "n3", Port: 9093}}},
	}
}

func TestConfigValidation(t *testing.T) {
	valid := validConfig()
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string // nothing: it is valid
	}{
		"a data node needs no CONTROLLER listener": {func(c *Config) { c.Voter, c.ControllerListener, c.AdvertisedController = false, "", "" }, nil},
		"a voter needs no client listeners":        {func(c *Config) { c.Data, c.InternalListener, c.ExternalListener = false, "", "" }, nil},
		"no id":                                    {func(c *Config) { c.NodeID = -1 }, []string{"--node-id"}},
		"no role":                                  {func(c *Config) { c.Voter, c.Data = false, false }, []string{"--roles"}},
		"no cluster":                               {func(c *Config) { c.Shared.ClusterID = ident.UUID{} }, []string{"clusterId is missing"}},
		"reserved directory":                       {func(c *Config) { c.DirectoryID = ident.UUID{15: 1} }, []string{"--directory-id"}},
		"no data directory":                        {func(c *Config) { c.DataDir = "" }, []string{"--data-dir"}},
		"always flushed":                           {func(c *Config) { c.Shared.Defaults.Flush = FlushAlways }, nil},
		"flushed in a way that is not known":       {func(c *Config) { c.Shared.Defaults.Flush = "always" }, []string{`defaults.flush: want PageCache or Always, have "always"`}},
		"no voters":                                {func(c *Config) { c.Shared.Voters = nil }, []string{"voters is empty"}},
		"voter without host":                       {func(c *Config) { c.Shared.Voters[0].Host = "" }, []string{"voters[0]: want id, host"}},
		"voter with port 0":                        {func(c *Config) { c.Shared.Voters[0].Port = 0 }, []string{"voters[0]: want id, host"}},
		"voter with port 2^16":                     {func(c *Config) { c.Shared.Voters[0].Port = 1 << 16 }, []string{"voters[0]"}},
		"voter without directory": {func(c *Config) { c.Shared.Voters[0].DirectoryID = ident.UUID{} },
			[]string{"voters[0]: directoryId"}},
		"the same voter twice":  {func(c *Config) { c.Shared.Voters = append(c.Shared.Voters, c.Shared.Voters[0]) }, []string{"voters[1]: id 3 is there twice"}},
		"listener without port": {func(c *Config) { c.InternalListener = "0.0.0.0" }, []string{`--listener-internal: address "0.0.0.0": want host:port`}},
		"port by name":          {func(c *Config) { c.AdvertisedExternal = "n3:kafka" }, []string{"--advertised-external", "want a port of 0 to 65535"}},
		"all that is wrong at once": {func(c *Config) { c.NodeID, c.DataDir, c.HTTPListener = -5, "", "x" },
			[]string{"--node-id", "--data-dir", "--listener-http"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := validConfig()
			c.change(&config)
			err := config.Validate()
			if len(c.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to say %q", err, want)
				}
			}
		})
	}
}

func TestSharedConfigFile(t *testing.T) {
	id := testUUID(1, 1).String()
	for name, c := range map[string]struct{ yaml, want string }{
		"defaults":        {"clusterId: " + id, ""},
		"misspelt field":  {"clusterId: " + id + "\nvoter: []", "voter"},
		"no uuid":         {"clusterId: x", "want 16 bytes"},
		"bare number":     {"defaults: {replicaLagTimeMax: 30}", `want a string with a unit, such as "30s"`},
		"no duration":     {"defaults: {replicaLagTimeMax: 30parsecs}", "30parsecs"},
		"not YAML at all": {"{", "cluster configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "node.yaml")
			if err := os.WriteFile(path, []byte(c.yaml), 0o644); err != nil {
				t.Fatal(err)
			}
			shared, err := LoadSharedConfig(path)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want it to say %q", err, c.want)
				}
				return
			}
			want := Defaults{ReplicaLagTimeMax: Duration(30 * time.Second), MinInSyncReplicas: 1, Flush: FlushPageCache, ReplicationFactor: 1, Partitions: 1}
			if err != nil || shared.Defaults != want || shared.ClusterID != testUUID(1, 1) {
				t.Fatalf("%+v, %v", shared, err)
			}
		})
	}
	if _, err := LoadSharedConfig(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Fatal("a missing file is no error")
	}
}

// The operator writes the file that all nodes share; its golden files are what it writes.
func TestTheOperatorsConfigMapIsRead(t *testing.T) {
	for file, want := range map[string]Defaults{
		"configmap.yaml":      {ReplicaLagTimeMax: Duration(30 * time.Second), MinInSyncReplicas: 1, Flush: FlushPageCache, ReplicationFactor: 1, Partitions: 1},
		"configmap-full.yaml": {ReplicaLagTimeMax: Duration(4 * time.Second), MinInSyncReplicas: 2, Flush: FlushAlways, ReplicationFactor: 1, Partitions: 1},
	} {
		golden, err := os.ReadFile(filepath.Join("..", "..", "controllers", "specs", "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var configMap struct{ Data map[string]string }
		if err := yaml.Unmarshal(golden, &configMap); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(path, []byte(configMap.Data["node.yaml"]), 0o644); err != nil {
			t.Fatal(err)
		}
		shared, err := LoadSharedConfig(path)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if shared.Defaults != want || len(shared.Voters) != 3 {
			t.Errorf("%s: defaults %+v, want %+v; %d voters", file, shared.Defaults, want, len(shared.Voters))
		}
		config := validConfig()
		if config.Shared = shared; config.Validate() != nil {
			t.Errorf("%s: %v", file, config.Validate())
		}
	}
}
