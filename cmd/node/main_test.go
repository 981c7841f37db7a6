package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/highwater-io/highwater/pkg/ident"
)

func TestEnvironmentSetsWhatTheCommandLineLeavesAlone(t *testing.T) {
	t.Setenv("HIGHWATER_NODE_ID", "7")
	t.Setenv("HIGHWATER_DATA_DIR", "/from/environment")
	t.Setenv("HIGHWATER_ADVERTISED_EXTERNAL", "n7:9092")
	command := runCommand()
	set := command.Flags()
	if err := set.Parse([]string{"--data-dir=/from/flag"}); err != nil {
		t.Fatal(err)
	}
	if err := fromEnvironment(set); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"node-id": "7", "data-dir": "/from/flag", "advertised-external": "n7:9092", "listener-http": "0.0.0.0:9095",
	} {
		if got := set.Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %q, want %q", flag, got, want)
		}
	}
}

func TestEnvironmentThatCannotBeReadNamesTheVariable(t *testing.T) {
	t.Setenv("HIGHWATER_NODE_ID", "seven")
	set := runCommand().Flags()
	if err := fromEnvironment(set); err == nil || !strings.Contains(err.Error(), "HIGHWATER_NODE_ID") {
		t.Fatalf("got %v", err)
	}
}

func TestEveryFlagHasAVariableOfItsOwn(t *testing.T) {
	seen := map[string]string{}
	runCommand().Flags().VisitAll(func(f *pflag.Flag) {
		name := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if other, ok := seen[name]; ok {
			t.Errorf("--%s and --%s share a variable", f.Name, other)
		}
		seen[name] = f.Name
		if f.Usage == "" {
			t.Errorf("--%s says nothing of itself", f.Name)
		}
	})
}

func TestResolveRolesAndDirectories(t *testing.T) {
	directory := ident.UUID{0: 9, 15: 1}.String()
	path := filepath.Join(t.TempDir(), "node.yaml")
	shared := "clusterId: " + directory + "\nvoters: [{id: 0, directoryId: " + directory + ", host: n0, port: 9093}]\n"
	if err := os.WriteFile(path, []byte(shared), 0o644); err != nil {
		t.Fatal(err)
	}
	base := func() *flags {
		f := &flags{config: path, roles: "data", directoryID: directory, logLevel: "info"}
		f.DataDir, f.HTTPListener = "/data", ":9095"
		f.ControllerListener, f.AdvertisedController = ":9093", "n0:9093"
		f.InternalListener, f.AdvertisedInternal = ":9094", "n0:9094"
		f.ExternalListener, f.AdvertisedExternal = ":9092", "n0:9092"
		return f
	}
	for name, c := range map[string]struct {
		change      func(*flags)
		voter, data bool
		want        string // error, empty: none
	}{
		"data":            {func(*flags) {}, false, true, ""},
		"voter":           {func(f *flags) { f.roles = "voter" }, true, false, ""},
		"both":            {func(f *flags) { f.roles = "voter, data" }, true, true, ""},
		"none":            {func(f *flags) { f.roles = "" }, false, false, "--roles"},
		"unknown role":    {func(f *flags) { f.roles = "data,controller" }, false, false, `unknown role "controller"`},
		"bad directory":   {func(f *flags) { f.directoryID = "x" }, false, false, "--directory-id"},
		"bad level":       {func(f *flags) { f.logLevel = "loud" }, false, false, "--log-level"},
		"no config":       {func(f *flags) { f.config += "-not-there" }, false, false, "configuration"},
		"negative id":     {func(f *flags) { f.nodeID = -1 }, false, false, "--node-id"},
		"nothing to tell": {func(f *flags) { f.AdvertisedExternal = "" }, false, false, "--advertised-external"},
	} {
		t.Run(name, func(t *testing.T) {
			f := base()
			c.change(f)
			config, _, err := f.resolve()
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want it to say %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.Voter != c.voter || config.Data != c.data || config.MetadataDir != "/data" || config.Timing.SessionTimeout == 0 {
				t.Fatalf("%+v", config)
			}
		})
	}
}

func TestExitCodesTellWhatHelps(t *testing.T) {
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "meta.properties"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	directory := ident.UUID{0: 9, 15: 1}.String()
	config, report := filepath.Join(t.TempDir(), "node.yaml"), filepath.Join(t.TempDir(), "termination-log")
	shared := "clusterId: " + directory + "\nvoters: [{id: 1, directoryId: " + directory + ", host: n1, port: 9093}]\n"
	if err := os.WriteFile(config, []byte(shared), 0o644); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"run", "--config=" + config, "--node-id=0", "--roles=data", "--directory-id=" + directory, "--data-dir=" + used,
		"--listener-http=127.0.0.1:0", "--listener-internal=127.0.0.1:0", "--listener-external=127.0.0.1:0",
		"--advertised-internal=n0:9094", "--advertised-external=n0:9092", "--termination-log=" + report}
	if code := run(arguments); code != exitVolume {
		t.Errorf("a damaged volume: exit %d", code)
	}
	if said, err := os.ReadFile(report); err != nil || !strings.HasPrefix(string(said), "VolumeUnreadable: ") {
		t.Errorf("the termination log has %q, %v", said, err)
	}
	if code := run([]string{"run", "--node-id=x"}); code != exitUsage {
		t.Errorf("a bad flag: exit %d", code)
	}
	if code := run([]string{"run", "--config=" + config, "--directory-id=" + directory}); code != exitUsage {
		t.Errorf("a bad configuration: exit %d", code)
	}
	if code := run([]string{"--help"}); code != 0 {
		t.Errorf("help: exit %d", code)
	}
}
