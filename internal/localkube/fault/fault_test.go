package fault

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/highwater-io/highwater/internal/testscale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

type client struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t: t, c: c, r: bufio.NewReader(c)}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.c, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) expect(line string) {
	c.t.Helper()
	_ = c.c.SetReadDeadline(time.Now().Add(testscale.Duration(20 * time.Second)))
	if got, err := c.r.ReadString('\n'); err != nil || got != line+"\n" {
		c.t.Fatalf("read %q, %v; want %q", got, err, line)
	}
}

// silent fails when anything arrives within a short time.
func (c *client) silent() {
	c.t.Helper()
	_ = c.c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := c.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read ended with %v, want silence", err)
	}
}

func table(t *testing.T) *Table {
	t.Helper()
	tbl := NewTable("127.0.0.1")
	t.Cleanup(tbl.Close)
	tbl.SetTargets("a", map[string]string{"INTERNAL": echo(t)})
	tbl.SetTargets("b", map[string]string{"internal": echo(t), "controller": echo(t)})
	return tbl
}

func address(t *testing.T, tbl *Table, from, to, listener string) string {
	t.Helper()
	addr, err := tbl.Address(from, to, listener)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestCutHoldsBothWaysAndHealDelivers(t *testing.T) {
	tbl := table(t)
	ab := dial(t, address(t, tbl, "a", "b", "internal"))
	ba := dial(t, address(t, tbl, "b", "a", "internal"))
	other := dial(t, address(t, tbl, "a", "b", "controller"))
	ab.send("one")
	ab.expect("one")
	tbl.Cut("a", "b", "internal", false)
	ab.send("two")
	ba.send("two")
	other.send("two")
	other.expect("two") // the other listener is untouched
	ab.silent()
	ba.silent()
	late := dial(t, address(t, tbl, "a", "b", "internal")) // no refusal: a broken wire says nothing
	late.send("late")
	late.silent()
	tbl.Heal("a", "b", "internal", false)
	ab.expect("two")
	ba.expect("two")
	late.expect("late")
}

func TestOneWayCutStopsOnlyThePacketsOfThatWay(t *testing.T) {
	tbl := table(t)
	ab := dial(t, address(t, tbl, "a", "b", "internal"))
	ab.send("up")
	ab.expect("up")
	tbl.Cut("b", "a", "INTERNAL", true) // requests arrive, answers don't
	if rules := tbl.Rules(); len(rules) != 1 || rules[0].From != "b" || !rules[0].Cut {
		t.Fatalf("rules %+v, want one from b to a", rules)
	}
	ab.send("lost answer")
	ab.silent()
	tbl.Heal("a", "b", "internal", true) // the other way: changes nothing
	ab.silent()
	tbl.Heal("b", "a", "internal", true)
	ab.expect("lost answer")
}

func TestWhenSomethingLastGotThroughIsKnownPerDirection(t *testing.T) {
	tbl := table(t)
	if at := tbl.LastPassed("a", "b", "internal"); !at.IsZero() {
		t.Errorf("something passed at %v before anything was sent", at)
	}
	ab := dial(t, address(t, tbl, "a", "b", "internal"))
	began := time.Now()
	ab.send("one")
	ab.expect("one")
	tbl.Cut("a", "b", "internal", false)
	before := tbl.LastPassed("a", "b", "internal")
	if before.Before(began) || time.Now().Before(before) {
		t.Errorf("passed at %v, want a time since %v", before, began)
	}
	if at := tbl.LastPassed("b", "a", "INTERNAL"); at.Before(before) {
		t.Errorf("the answer passed at %v, before the question at %v", at, before)
	}
	ab.send("two")
	ab.silent()
	if at := tbl.LastPassed("a", "b", "internal"); !at.Equal(before) {
		t.Errorf("what a cut holds back passed at %v", at)
	}
	tbl.Heal("a", "b", "internal", false)
	ab.expect("two")
	if at := tbl.LastPassed("a", "b", "internal"); !at.After(before) {
		t.Errorf("after the link was healed the last time is still %v", at)
	}
}

func TestDelayIsPerDirectionAndAddsUp(t *testing.T) {
	tbl := table(t)
	c := dial(t, address(t, tbl, "a", "b", "internal"))
	c.send("warm")
	c.expect("warm")
	for _, oneWay := range []bool{true, false} {
		tbl.Heal(Any, Any, Any, false)
		const delay = 60 * time.Millisecond
		tbl.Delay("a", "b", "internal", delay, oneWay)
		began := time.Now()
		c.send("late")
		c.expect("late")
		want := delay
		if !oneWay {
			want = 2 * delay
		}
		if took := time.Since(began); took < want {
			t.Errorf("one way %v: the round trip took %v, want at least %v", oneWay, took, want)
		}
	}
}

func TestWildcardsCoverAndHealAll(t *testing.T) {
	tbl := table(t)
	c := dial(t, address(t, tbl, "a", "b", "internal"))
	tbl.Cut("b", Any, Any, false)
	c.send("x")
	c.silent()
	tbl.Heal(Any, Any, Any, false)
	c.expect("x")
	if len(tbl.Rules()) != 0 {
		t.Errorf("rules left: %v", tbl.Rules())
	}
}

func TestConnectionsAreRefusedWhileTheTargetIsDown(t *testing.T) {
	tbl := table(t)
	addr := address(t, tbl, "a", "b", "internal")
	tbl.SetTargets("b", nil)
	if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			c.Close()
		}
		t.Fatalf("dial while the target is down: %v, want refused", err)
	}
	tbl.SetTargets("b", map[string]string{"INTERNAL": echo(t)})
	if again := address(t, tbl, "a", "b", "internal"); again != addr {
		t.Fatalf("the proxy moved from %s to %s", addr, again)
	}
	c := dial(t, addr)
	c.send("back")
	c.expect("back")
}

func TestKilledTargetIsSeenUnlessTheLinkIsCut(t *testing.T) {
	tbl := table(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tbl.SetTargets("c", map[string]string{"INTERNAL": l.Addr().String()})
	for _, cut := range []bool{false, true} {
		c := dial(t, address(t, tbl, "a", "c", "internal"))
		c.send("hello")
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if cut {
			tbl.Cut("a", "c", "internal", false)
		}
		server.Close()
		if cut {
			c.silent()
			tbl.Heal("a", "c", "internal", false)
		}
		_ = c.c.SetReadDeadline(time.Now().Add(testscale.Duration(20 * time.Second)))
		if _, err := c.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cut %v: the end of the server was not passed on: %v", cut, err)
		}
	}
}

func TestViaSendsNewConnectionsElsewhereAndResetsOldOnes(t *testing.T) {
	tbl := table(t)
	addr := address(t, tbl, "a", "b", "internal")
	old := dial(t, addr)
	old.send("straight")
	old.expect("straight")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tbl.Via("a", "b", "internal", l.Addr().String())
	_ = old.c.SetReadDeadline(time.Now().Add(testscale.Duration(20 * time.Second)))
	if _, err := old.r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("a connection from before ended with %v, want a reset", err)
	}
	dial(t, addr)
	between, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	between.Close()

	tbl.Heal("a", "b", "internal", false)
	healed := dial(t, addr)
	healed.send("straight again")
	healed.expect("straight again")
	if rules := tbl.Rules(); len(rules) != 0 {
		t.Fatalf("rules %v are left", rules)
	}
}
