package node

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// installLife is one life of a node, as far as its installs go. The test is the quorum, the publisher and the clock.
type installLife struct {
	t    *testing.T
	s    *installs
	now  time.Time
	seen installSeen
}

func newInstallLife(t *testing.T, fsys vfs.FS, now time.Time) *installLife {
	t.Helper()
	id, err := newUUID()
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		cfg: Config{NodeID: 3, MetadataDir: "metadata"}, logger: slog.New(slog.DiscardHandler),
		metrics: newMetrics(), facts: newFactStream(id), metadataDir: newLogDir(fsys, "metadata", 0),
	}
	s, err := openInstalls(n, now)
	if err != nil {
		t.Fatal(err)
	}
	return &installLife{t: t, s: s, now: now, seen: installSeen{highWatermark: ident.UnknownOffset}}
}

func installDisk(t *testing.T) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("metadata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	return mem
}

// after lets time pass and has it look.
func (l *installLife) after(d time.Duration) {
	l.t.Helper()
	l.now = l.now.Add(d)
	if err := l.s.look(l.now, l.seen); err != nil {
		l.t.Fatal(err)
	}
}

// offer is what the raft says of a new offer, the first of its install or a later one.
func (l *installLife) offer(end ident.Offset, target ident.Offset) {
	i := &l.seen.install
	if !i.Active {
		*i = raft.Install{Active: true, Since: i.Since + 1}
	}
	i.Snapshot, i.Bytes, i.Size, i.Target = raft.SnapshotID{End: end, Epoch: 2}, 0, 0, max(i.Target, target)
	i.Downloads++
}

func (l *installLife) fail(err error) {
	i := &l.seen.install
	i.Bytes, i.Size, i.Failures, i.Failure = 0, 0, i.Failures+1, err
}

// done is what is to be seen once the snapshot was installed and the target was applied.
func (l *installLife) done() {
	i := &l.seen.install
	i.Active, i.Bytes = false, i.Size
	l.seen.snapshots = exec.SnapshotStats{Latest: metadata.SnapshotID{EndOffset: i.Snapshot.End, Epoch: i.Snapshot.Epoch}, LatestBytes: i.Size}
	l.seen.applied, l.seen.highWatermark, l.seen.follows = i.Target, i.Target, true
}

func (l *installLife) all() []nodefact.Fact {
	l.s.facts.mu.Lock()
	defer l.s.facts.mu.Unlock()
	return slices.Clone(l.s.facts.facts)
}

func (l *installLife) told(kind string) []nodefact.Fact {
	return slices.DeleteFunc(l.all(), func(f nodefact.Fact) bool { return f.Kind != kind })
}

// want says which kinds were told, in order.
func (l *installLife) want(kinds ...string) {
	l.t.Helper()
	var have []string
	for _, f := range l.all() {
		have = append(have, f.Kind)
	}
	if !slices.Equal(have, kinds) {
		l.t.Fatalf("told %v, want %v", have, kinds)
	}
}

func TestInstallIsToldFromItsOfferToItsTarget(t *testing.T) {
	l := newInstallLife(t, installDisk(t), time.Unix(1000, 0))
	l.after(0)
	l.want()
	l.offer(90, 120)
	l.after(0)
	l.want(nodefact.MetadataBehind) // at once; the start waits for the size
	l.seen.install.Size, l.seen.install.Bytes = 4000, 1000
	l.after(100 * time.Millisecond)
	l.want(nodefact.MetadataBehind, nodefact.SnapshotInstallStarted, nodefact.SnapshotInstallProgress)
	for at := int64(1100); at <= 3000; at += 100 { // ten times a second
		l.seen.install.Bytes = at
		l.after(100 * time.Millisecond)
	}
	start, progress := l.told(nodefact.SnapshotInstallStarted)[0], l.told(nodefact.SnapshotInstallProgress)
	if len(progress) != 1 || progress[0].Bytes != 3000 || progress[0].TotalBytes != 4000 || progress[0].BytesPerSecond != 1000 || progress[0].DurationMillis != 2100 {
		t.Fatalf("progress %+v, want the newest alone", progress)
	}
	if start.TotalBytes != 4000 || start.SnapshotID != "00000000000000000090-0000000002" || start.Replica != 3 || !start.Time.Equal(time.Unix(1000, 0)) || start.Install.IsZero() {
		t.Fatalf("start %+v", start)
	}
	// Installed, but what was committed when it began is not here yet.
	l.seen.install.Bytes, l.seen.install.Active = 4000, true
	l.seen.applied, l.seen.highWatermark, l.seen.follows = 90, 90, true
	l.after(time.Second)
	if l.s.target() != 120 || len(l.told(nodefact.SnapshotInstalled)) > 0 {
		t.Fatalf("target %d", l.s.target())
	}
	l.seen.install.Active, l.seen.highWatermark, l.seen.applied = false, 130, 119
	l.after(time.Second)
	if !l.s.underWay() {
		t.Fatal("over before all is applied")
	}
	l.done()
	l.after(time.Second)
	l.want(nodefact.SnapshotInstallStarted, nodefact.SnapshotInstalled, nodefact.MetadataCurrent)
	end := l.told(nodefact.SnapshotInstalled)[0]
	if end.Install != start.Install || end.Bytes != 4000 || end.DurationMillis != 5100 || end.SnapshotID != start.SnapshotID || l.s.target() != 0 {
		t.Fatalf("end %+v", end)
	}
	l.after(time.Hour)
	l.want(nodefact.SnapshotInstallStarted, nodefact.SnapshotInstalled, nodefact.MetadataCurrent)
	// Another one is another one.
	l.offer(190, 220)
	l.seen.install.Size = 5
	l.after(0)
	if starts := l.told(nodefact.SnapshotInstallStarted); len(starts) != 2 || starts[1].Install == start.Install {
		t.Fatalf("%+v", starts)
	}
}

func TestInstallThatIsOverBeforeAnybodyLooksIsToldWhole(t *testing.T) {
	l := newInstallLife(t, installDisk(t), time.Unix(1000, 0))
	l.offer(90, 120)
	l.seen.install.Size = 77
	l.done()
	l.after(0)
	l.want(nodefact.SnapshotInstallStarted, nodefact.SnapshotInstalled, nodefact.MetadataCurrent)
	if end := l.told(nodefact.SnapshotInstalled)[0]; end.Bytes != 77 {
		t.Fatalf("%+v", end)
	}
}

// What failed is told by its reason, and the same one seldom; the install goes on, and a newer snapshot does not make
// it another one.
func TestFailuresAreToldByReasonAndBelongToOneInstall(t *testing.T) {
	l := newInstallLife(t, installDisk(t), time.Unix(1000, 0))
	for i, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("x: %w", raft.ErrDownloadLeader), nodefact.InstallLeaderLost},
		{fmt.Errorf("x: %w", raft.ErrDownloadGone), nodefact.InstallSnapshotGone},
		{fmt.Errorf("x: %w", raft.ErrDownloadID), nodefact.InstallWrongID},
		{fmt.Errorf("x: %w", raft.ErrDownloadSize), nodefact.InstallWrongSize},
		{fmt.Errorf("%w: %w", metadata.ErrSnapshot, batch.ErrTruncated), nodefact.InstallWrongSize},
		{fmt.Errorf("%w: %w", metadata.ErrSnapshot, batch.ErrCRC), nodefact.InstallWrongCRC},
		{fmt.Errorf("%w: %w", metadata.ErrSnapshot, metadata.ErrSnapshotHeader), nodefact.InstallWrongHeader},
		{fmt.Errorf("%w: %w", metadata.ErrSnapshot, metadata.ErrSnapshotFooter), nodefact.InstallWrongFooter},
		{fmt.Errorf("%w: %w", metadata.ErrSnapshot, errors.New("something")), nodefact.InstallWrongContent},
	} {
		l.offer(90+ident.Offset(i), 120+ident.Offset(i))
		l.seen.install.Size, l.seen.install.Bytes = 4000, 10
		l.after(installFailureInterval)
		l.fail(tc.err)
		l.after(time.Millisecond)
		failures := l.told(nodefact.SnapshotInstallFailed)
		if len(failures) != i+1 {
			t.Fatalf("%v: %d failures told, want %d", tc.err, len(failures), i+1)
		}
		if f := failures[i]; f.Reason != tc.want || f.Message != tc.err.Error() || f.Bytes != 10 || f.TotalBytes != 4000 {
			t.Fatalf("%+v, want %s", f, tc.want)
		}
		for range 20 { // again and again
			l.fail(tc.err)
			l.after(time.Millisecond)
		}
		if n := len(l.told(nodefact.SnapshotInstallFailed)); n != i+1 {
			t.Fatalf("%d failures told", n)
		}
	}
	if starts := l.told(nodefact.SnapshotInstallStarted); len(starts) != 1 || l.s.target() != 128 {
		t.Fatalf("%d starts, target %d", len(starts), l.s.target())
	}
	l.offer(100, 130)
	l.seen.install.Size = 7
	l.done()
	l.after(time.Second)
	if end := l.told(nodefact.SnapshotInstalled); len(end) != 1 || end[0].SnapshotID != "00000000000000000100-0000000002" || end[0].Bytes != 7 {
		t.Fatalf("%+v", end)
	}
}

// A restart goes on with the same install, whether the node is given a snapshot again or had installed it already.
func TestRestartGoesOnWithTheSameInstall(t *testing.T) {
	disk := installDisk(t)
	first := newInstallLife(t, disk, time.Unix(1000, 0))
	first.offer(90, 120)
	first.seen.install.Size = 4000
	first.after(0)
	id := first.told(nodefact.SnapshotInstallStarted)[0].Install

	second := newInstallLife(t, disk, time.Unix(1060, 0))
	second.want()
	if second.s.target() != 120 {
		t.Fatalf("target %d: a data node would ask to be unfenced too early", second.s.target())
	}
	second.offer(95, 125)
	second.after(0)
	second.seen.install.Size = 4100
	second.after(0)
	second.want(nodefact.MetadataBehind, nodefact.SnapshotInstallStarted)
	if f := second.told(nodefact.SnapshotInstallStarted)[0]; f.Install != id || !f.Time.Equal(time.Unix(1000, 0)) || f.SnapshotID != "00000000000000000095-0000000002" {
		t.Fatalf("%+v, want install %s again", f, id)
	}

	// Killed between the rename and the target: nobody offers a snapshot any more.
	third := newInstallLife(t, disk, time.Unix(1070, 0))
	third.seen.snapshots = exec.SnapshotStats{Latest: metadata.SnapshotID{EndOffset: 95, Epoch: 2}, LatestBytes: 4100}
	third.seen.applied, third.seen.highWatermark, third.seen.follows = 95, 95, true
	third.after(0)
	third.seen.applied, third.seen.highWatermark = 125, 125
	third.after(time.Second)
	third.want(nodefact.SnapshotInstallStarted, nodefact.SnapshotInstalled, nodefact.MetadataCurrent)
	end := third.told(nodefact.SnapshotInstalled)[0]
	if end.Install != id || end.Bytes != 4100 || end.DurationMillis != 71_000 {
		t.Fatalf("%+v", end)
	}

	// Nobody has acknowledged it: it is told again, the very same.
	fourth := newInstallLife(t, disk, time.Unix(2000, 0))
	fourth.want(nodefact.SnapshotInstallStarted, nodefact.SnapshotInstalled)
	if f := fourth.told(nodefact.SnapshotInstalled)[0]; f.Install != id || f.DurationMillis != 71_000 || !f.Time.Equal(end.Time) {
		t.Fatalf("%+v", f)
	}
	if err := fourth.s.facts.acknowledge(1); err != nil { // the start alone
		t.Fatal(err)
	}
	fourth.want(nodefact.SnapshotInstallStarted, nodefact.SnapshotInstalled)
	if err := fourth.s.facts.acknowledge(2); err != nil {
		t.Fatal(err)
	}
	fourth.want()
	newInstallLife(t, disk, time.Unix(2001, 0)).want()
	if _, err := disk.Stat("metadata/" + installsFile); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is still there: %v", installsFile, err)
	}
}

// The power goes at any step of the disk. What was told once is told again under the same id until it is acknowledged,
// and what was acknowledged never.
func TestPowerCutAtAnyStepKeepsWhatWasTold(t *testing.T) {
	cuts := 0
	for step := 0; ; step++ {
		ended := false
		for _, keep := range []int{0, 50, 100} {
			mem := installDisk(t)
			var after *vfs.Mem
			count := 0
			disk := vfs.Inject(mem, func(op, _ string) error {
				if after == nil && op != vfs.OpOpen && op != vfs.OpStat && op != vfs.OpRead {
					if count == step {
						after = mem.CrashClone(rand.New(rand.NewPCG(uint64(step), uint64(keep))), keep)
					}
					count++
				}
				if after != nil {
					return errPowerOff
				}
				return nil
			})
			told, gone := map[string]ident.UUID{}, map[ident.UUID]bool{}
			note := func(l *installLife) {
				for _, f := range l.all() {
					if f.Kind == nodefact.SnapshotInstallStarted || f.Kind == nodefact.SnapshotInstalled {
						told[f.Kind] = f.Install
					}
				}
			}
			l := newInstallLife(t, disk, time.Unix(1000, 0))
			run := func() error {
				for _, act := range []func(){
					func() { l.offer(90, 120); l.seen.install.Size = 50 },
					func() { l.offer(95, 125); l.seen.install.Size = 60 },
					l.done,
				} {
					act()
					if err := l.s.look(l.now, l.seen); err != nil {
						return err
					}
					note(l)
				}
				if err := l.s.facts.acknowledge(1 << 30); err != nil {
					return err
				}
				gone[told[nodefact.SnapshotInstalled]] = true
				return nil
			}
			err := run()
			if after == nil {
				if err != nil {
					t.Fatal(err)
				}
				ended = true
				break
			}
			cuts++
			if err == nil {
				t.Fatalf("step %d: the cut went unnoticed", step)
			}
			again := newInstallLife(t, after, time.Unix(1010, 0))
			again.seen.applied = 95
			again.after(2 * installStartPatience)
			start, wasTold := told[nodefact.SnapshotInstallStarted]
			starts := again.told(nodefact.SnapshotInstallStarted)
			ends := again.told(nodefact.SnapshotInstalled)
			switch _, over := told[nodefact.SnapshotInstalled]; {
			case len(starts) > 1 || len(ends) > 1:
				t.Fatalf("step %d: %d starts, %d ends", step, len(starts), len(ends))
			case len(starts) == 1 && wasTold && starts[0].Install != start:
				t.Fatalf("step %d: install %s was told, now %s is", step, start, starts[0].Install)
			case !over && wasTold && len(starts) == 0:
				t.Fatalf("step %d: install %s was told and is forgotten", step, start)
			case over && !gone[start] && len(starts) != len(ends):
				t.Fatalf("step %d: a start without its end", step)
			}
		}
		if ended {
			break
		}
	}
	if cuts < 20 {
		t.Fatalf("%d cuts: the steps were not seen", cuts)
	}
}

func TestRecordThatCanNotBeReadIsPutAside(t *testing.T) {
	for name, content := range map[string]string{
		"rot":               "{\"version\":1,\"inst",
		"a later version":   `{"version":2,"installs":[]}`,
		"two under way":     `{"version":1,"installs":[{"id":"AAAAAAAAAAAAAAAAAAAAyA","snapshotId":"00000000000000000090-0000000002"},{"id":"AAAAAAAAAAAAAAAAAAAAyQ","snapshotId":"00000000000000000090-0000000002"}]}`,
		"no snapshot's id":  `{"version":1,"installs":[{"id":"AAAAAAAAAAAAAAAAAAAAyA","snapshotId":"90-2"}]}`,
		"an id that is not": `{"version":1,"installs":[{"id":"x","snapshotId":"00000000000000000090-0000000002"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			disk := installDisk(t)
			if err := vfs.WriteFileAtomic(disk, "metadata/"+installsFile, []byte(content)); err != nil {
				t.Fatal(err)
			}
			if _, err := readInstallRecords(disk, "metadata"); !errors.Is(err, errInstallRecords) {
				t.Fatalf("read with %v", err)
			}
			l := newInstallLife(t, disk, time.Unix(1000, 0))
			l.offer(90, 120)
			l.after(0)
			if r, err := readInstallRecords(disk, "metadata"); err != nil || r.active() == nil {
				t.Fatalf("not replaced: %v", err)
			}
		})
	}
}

func TestEndsThatNobodyAcknowledgesAreBounded(t *testing.T) {
	l := newInstallLife(t, installDisk(t), time.Unix(1000, 0))
	for i := range keptInstalls + 5 {
		l.offer(ident.Offset(100*i+90), ident.Offset(100*i+95))
		l.done()
		l.after(time.Second)
	}
	if kept, told := len(l.s.records.all), len(l.told(nodefact.SnapshotInstalled)); kept != keptInstalls || told != keptInstalls {
		t.Fatalf("%d are kept, the ends of %d are told", kept, told)
	}
}

func TestDiskThatFailsIsToldAndTheInstallGoesOn(t *testing.T) {
	l := newInstallLife(t, installDisk(t), time.Unix(1000, 0))
	l.s.diskFailed(l.now, os.ErrInvalid) // nothing is under way
	l.offer(90, 120)
	l.after(0)
	l.s.diskFailed(l.now, os.ErrInvalid)
	if f := l.told(nodefact.SnapshotInstallFailed); len(f) != 1 || f[0].Reason != nodefact.InstallDisk || !l.s.underWay() {
		t.Fatalf("%+v", f)
	}
}

func TestPauseOfTheQuorumDoesNotMakeANodeBehind(t *testing.T) {
	l := newInstallLife(t, installDisk(t), time.Unix(1000, 0))
	l.after(metadataBehindAfter - 1)
	l.want()
	l.after(1)
	l.want(nodefact.MetadataBehind)
	l.seen.follows, l.seen.highWatermark, l.seen.applied = true, 10, 9
	l.after(time.Second)
	l.want(nodefact.MetadataBehind)
	l.seen.applied = 10
	l.after(time.Second)
	l.want(nodefact.MetadataCurrent)
	l.seen.follows = false // an election
	l.after(metadataBehindAfter - 1)
	l.seen.follows = true
	l.after(1)
	l.seen.follows = false
	l.after(metadataBehindAfter - 1)
	l.want(nodefact.MetadataCurrent)
	l.after(1)
	l.want(nodefact.MetadataBehind)
}

func TestWhatIsHeldOutlivesTheRing(t *testing.T) {
	l := newInstallLife(t, installDisk(t), time.Unix(1000, 0))
	l.offer(90, 120)
	l.seen.install.Size = 7
	l.done()
	l.after(0)
	for range 2 * keptFacts {
		l.s.facts.add(nodefact.Fact{Kind: nodefact.ISRChange})
	}
	if n := len(l.all()); n != keptFacts || len(l.told(nodefact.SnapshotInstallStarted)) != 1 || len(l.told(nodefact.SnapshotInstalled)) != 1 || len(l.told(nodefact.MetadataCurrent)) != 1 {
		t.Fatalf("%d are kept, the first are %+v", n, l.all()[:3])
	}
}

func TestAcknowledgementNamesTheIncarnation(t *testing.T) {
	disk := installDisk(t)
	l := newInstallLife(t, disk, time.Unix(1000, 0))
	l.offer(90, 120)
	l.done()
	l.after(0)
	ok := func() error { return nil }
	server := httptest.NewServer(newHTTPServer(ok, ok, l.s.facts, newMetrics().registry).server.Handler)
	defer server.Close()
	post := func(query string) int {
		t.Helper()
		resp, err := http.Post(server.URL+"/facts/acknowledged?"+query, "", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	self := "incarnation=" + l.s.facts.incarnation.String()
	for _, tc := range []struct {
		query string
		code  int
		left  int
	}{
		{"upto=9", 400, 1},
		{self, 400, 1},
		{self + "&upto=-1", 400, 1},
		{"incarnation=x&upto=9", 400, 1},
		{"incarnation=" + testUUID(1, 1).String() + "&upto=9", 409, 1},
		{self + "&upto=0", 204, 1},
		{self + "&upto=9", 204, 0},
		{self + "&upto=9", 204, 0},
	} {
		if code := post(tc.query); code != tc.code || len(l.told(nodefact.SnapshotInstalled)) != tc.left {
			t.Errorf("%s: %d, %d ends left", tc.query, code, len(l.told(nodefact.SnapshotInstalled)))
		}
	}
	resp, err := http.Get(server.URL + "/facts/acknowledged?" + self + "&upto=9")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("reading acknowledges: %s", resp.Status)
	}
	// A disk that can't take it says so, and the fact stays.
	l.offer(190, 220)
	l.done()
	l.after(0)
	_ = l.s.records.fs.(*logDir).fail(vfs.OpSync, os.ErrInvalid)
	if code := post(self + "&upto=99"); code != 503 || len(l.told(nodefact.SnapshotInstalled)) != 1 {
		t.Errorf("%d", code)
	}
}
