package controllers_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

var _ = Describe("The install of a metadata snapshot", func() {
	const first, second = "00000000000000000090-0000000002", "00000000000000000095-0000000003"
	var (
		f       *fixture
		install = ident.UUID{0: 0xab, 15: 200}
		began   = time.Unix(1_700_000_000, 500_000_000)
	)
	BeforeEach(func(ctx SpecContext) {
		f = newFixture(ctx)
		f.start(ctx, nil)
		for _, id := range []ident.NodeID{0, 1, 2, 1000, 1001, 1002} {
			f.cluster.Tell(id, nodefact.Fact{Kind: nodefact.MetadataCurrent})
		}
		Eventually(minAvailable(ctx, f)).Should(Equal(5))
	})

	fact := func(kind, snapshot string, after time.Duration) nodefact.Fact {
		return nodefact.Fact{Kind: kind, Install: install, SnapshotID: snapshot, Time: began.Add(after)}
	}
	start := func(snapshot string) nodefact.Fact {
		s := fact(nodefact.SnapshotInstallStarted, snapshot, 0)
		s.TotalBytes = 40 << 20
		return s
	}
	progress := func(bytes, rate int64, after time.Duration) nodefact.Fact {
		p := fact(nodefact.SnapshotInstallProgress, first, after)
		p.Bytes, p.TotalBytes, p.BytesPerSecond = bytes, 40<<20, rate
		return p
	}
	end := func(snapshot string) nodefact.Fact {
		e := fact(nodefact.SnapshotInstalled, snapshot, 61*time.Second)
		e.Bytes, e.TotalBytes, e.DurationMillis = 40<<20, 40<<20, 61_234
		return e
	}
	behind, current := nodefact.Fact{Kind: nodefact.MetadataBehind}, nodefact.Fact{Kind: nodefact.MetadataCurrent}
	node := func(ctx SpecContext) func() hwv1alpha1.NodeStatus {
		return func() hwv1alpha1.NodeStatus { return f.getSet(ctx).Status.Nodes[1] }
	}
	told := func(ctx SpecContext, reason string) func() []string {
		return func() []string { return f.events(ctx, kindSet, "logs", reason) }
	}
	// expire deletes all events, as the API server does after a while: whoever relied on their names to write none twice
	// writes them again.
	expire := func(ctx SpecContext) {
		GinkgoHelper()
		f.silent(ctx, func() {})
		Expect(api.DeleteAllOf(ctx, &eventsv1.Event{}, client.InNamespace(f.namespace))).To(Succeed())
	}

	It("stands on the set from its start to its end, with one event for each, whoever restarts meanwhile", func(ctx SpecContext) {
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionFalse, hwv1alpha1.ReasonNoInstall)
		Eventually(node(ctx)).Should(HaveField("Metadata", hwv1alpha1.MetadataCurrent))
		f.cluster.Fence(1, true)
		f.cluster.Tell(1, behind, start(first), progress(12<<20, 3<<20, 4*time.Second))
		Eventually(func() string {
			return f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionTrue, hwv1alpha1.ReasonInstalling).Message
		}).Should(Equal("node 1 (pod logs-1): snapshot " + first + ", 12.0 MiB of 40.0 MiB (30%), 3.0 MiB/s"))
		Expect(node(ctx)()).To(And(HaveField("Metadata", hwv1alpha1.MetadataBehind), HaveField("LastSnapshotInstall", BeNil()),
			HaveField("SnapshotInstall", HaveValue(And(HaveField("ID", install.String()), HaveField("SnapshotID", first),
				HaveField("StartedAt.Unix()", began.Unix()))))))
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallStarted)()).To(ConsistOf(
			"node 1 (pod logs-1) installs metadata snapshot " + first + " of 41943040 bytes: the quorum's log no longer has what it needs next"))
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonNodesFenced)
		Expect(condition.Message).To(HaveSuffix("logs-1 (Fenced, installs a metadata snapshot)"))
		Expect(minAvailable(ctx, f)()).To(Equal(6), "a node that has to catch up is missing")

		By("an operator that starts writes nothing, not even events that are long gone")
		expire(ctx)
		f.silent(ctx, f.cluster.StartOperator)
		f.silent(ctx, f.cluster.ForgetFacts)

		By("a node that starts goes on with it, here with a newer snapshot")
		f.cluster.Begin(1)
		f.cluster.Tell(1, behind, start(second))
		Eventually(func() string { return node(ctx)().SnapshotInstall.SnapshotID }).Should(Equal(second))
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallStarted)()).To(BeEmpty())
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallFailed)()).To(BeEmpty())
		Expect(f.cluster.Acknowledged(1)).To(BeZero())

		By("its end is written down before it is acknowledged")
		f.cluster.Tell(1, end(second), current)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionFalse, hwv1alpha1.ReasonNoInstall)
		Eventually(func() int64 { return f.cluster.Acknowledged(1) }).Should(BeEquivalentTo(3))
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstalled)()).To(ConsistOf(
			"node 1 (pod logs-1) installed metadata snapshot " + second + " of 41943040 bytes in 1m1.234s"))
		Expect(node(ctx)()).To(And(HaveField("Metadata", hwv1alpha1.MetadataCurrent), HaveField("SnapshotInstall", BeNil()),
			HaveField("LastSnapshotInstall", HaveValue(And(HaveField("ID", install.String()), HaveField("SnapshotID", second),
				HaveField("Bytes", BeEquivalentTo(40<<20)), HaveField("EndedAt.Unix()", began.Add(61*time.Second).Unix()))))))
		f.cluster.Fence(1, false)
		Eventually(minAvailable(ctx, f)).Should(Equal(5))

		By("a node whose acknowledgement was lost tells it again, and nobody hears of it twice")
		expire(ctx)
		f.silent(ctx, func() {
			f.cluster.Begin(1)
			f.cluster.Tell(1, start(second), end(second), current)
		})
		Expect(f.cluster.Acknowledged(1)).To(BeEquivalentTo(2))
		f.silent(ctx, f.cluster.StartOperator)
	})

	It("that was over before an operator looked is told whole, and acknowledged", func(ctx SpecContext) {
		f.cluster.Deafen(true)
		f.cluster.Tell(1, start(first), end(first), current)
		Eventually(told(ctx, hwv1alpha1.EventSnapshotInstalled)).Should(HaveLen(1))
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallStarted)()).To(HaveLen(1))
		Eventually(func() any { return node(ctx)().LastSnapshotInstall }).ShouldNot(BeNil())
		// The operator dies before the node has heard that it is written down.
		expire(ctx)
		f.cluster.Deafen(false)
		f.silent(ctx, f.cluster.StartOperator)
		Expect(f.cluster.Acknowledged(1)).To(BeEquivalentTo(3))

		By("another one is another one, also of a voter")
		install = ident.UUID{0: 0xac, 15: 200}
		f.cluster.Tell(1, start(second), end(second), current)
		f.cluster.Tell(1001, start(second), end(second), current)
		Eventually(told(ctx, hwv1alpha1.EventSnapshotInstalled)).Should(ConsistOf(HavePrefix("node 1 "), HavePrefix("node 1001 (pod logs-1001) ")))
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallStarted)()).To(HaveLen(2))
	})

	It("that fails says why, once for each reason, and goes on", func(ctx SpecContext) {
		fail := func(reason, message string) {
			x := fact(nodefact.SnapshotInstallFailed, first, time.Second)
			x.Reason, x.Message = reason, message
			f.cluster.Tell(1001, x)
		}
		failure := func() string { return f.getSet(ctx).Status.Nodes[4].SnapshotInstall.LastFailure }
		f.cluster.Tell(1001, behind, start(first))
		fail(nodefact.InstallWrongCRC, "the checksum is not what it should be")
		Eventually(func(g Gomega) {
			g.Expect(f.getSet(ctx).Status.Nodes[4].SnapshotInstall).NotTo(BeNil())
			g.Expect(failure()).To(Equal(nodefact.InstallWrongCRC))
		}).Should(Succeed())
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallFailed)()).To(ConsistOf(
			"node 1001 (pod logs-1001) gave up a download of metadata snapshot " + first + " and begins anew, WrongCRC: the checksum is not what it should be"))
		f.silent(ctx, func() { fail(nodefact.InstallWrongCRC, "again, elsewhere") })
		fail(nodefact.InstallLeaderLost, "leader 1000 is gone")
		Eventually(failure).Should(Equal(nodefact.InstallLeaderLost))
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallFailed)()).To(HaveLen(2))
		Expect(f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionTrue, hwv1alpha1.ReasonInstalling).Message).To(
			HaveSuffix(", begun anew after LeaderLost"))
		expire(ctx)
		f.silent(ctx, f.cluster.StartOperator)
		f.silent(ctx, func() {
			f.cluster.Begin(1001)
			f.cluster.Tell(1001, behind, start(first))
		})
		f.cluster.Tell(1001, end(first), current)
		Eventually(told(ctx, hwv1alpha1.EventSnapshotInstalled)).Should(HaveLen(1))
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallStarted)()).To(BeEmpty())
	})

	It("of a node that came back without its directory has an end too", func(ctx SpecContext) {
		f.cluster.Tell(2, behind, start(first))
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionTrue, hwv1alpha1.ReasonInstalling)
		f.cluster.Begin(2)
		f.silent(ctx, func() {}) // it may still tell of it
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionTrue, hwv1alpha1.ReasonInstalling)
		f.cluster.Tell(2, current)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionFalse, hwv1alpha1.ReasonNoInstall)
		Expect(told(ctx, hwv1alpha1.EventSnapshotInstallFailed)()).To(ConsistOf(ContainSubstring("no longer knows of the install of metadata snapshot " + first)))
	})

	It("makes no storm of writes, however many nodes install", func(ctx SpecContext) {
		ids := []ident.NodeID{0, 1, 2, 1000, 1001, 1002}
		for _, id := range ids {
			f.cluster.Tell(id, start(first))
		}
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionTrue, hwv1alpha1.ReasonInstalling)
		f.silent(ctx, func() {})
		writes := map[string]bool{}
		for i := range 300 { // every 2 s of ten minutes
			for _, id := range ids {
				f.cluster.Tell(id, progress(int64(i)*(40<<20)/300, 1<<20, time.Duration(2*i)*time.Second))
			}
			writes[fmt.Sprint(f.getSet(ctx).ResourceVersion)] = true
		}
		f.silent(ctx, func() {})
		writes[fmt.Sprint(f.getSet(ctx).ResourceVersion)] = true
		// Of each node at most one for each 15 s; nodes that move together share a write.
		Expect(len(writes)).To(And(BeNumerically(">", 5), BeNumerically("<", 6*45)))
		Expect(f.eventuallySet(ctx, hwv1alpha1.ReplicaSetSnapshotInstalling, metav1.ConditionTrue, hwv1alpha1.ReasonInstalling).Message).To(ContainSubstring("(9"))
	})
})
