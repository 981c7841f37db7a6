package controllers_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

var _ = Describe("A disk that fails", func() {
	var f *fixture
	BeforeEach(func(ctx SpecContext) {
		f = newFixture(ctx)
		f.start(ctx, nil)
		Expect(api.Create(ctx, f.partition("orders", func(p *hwv1alpha1.Partition) { p.Spec.MinInSyncReplicas = ptr(int32(2)) }))).To(Succeed())
		f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionReady, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected)
		f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionIntact, metav1.ConditionTrue, hwv1alpha1.ReasonAllReplicasIntact)
	})

	ofSet := func(ctx SpecContext, reason string) func() []string {
		return func() []string { return f.events(ctx, kindSet, "logs", reason) }
	}
	ofPartition := func(ctx SpecContext, reason string) func() []string {
		return func() []string { return f.events(ctx, kindPartition, "orders", reason) }
	}
	replica := func(ctx SpecContext, id int) func() hwv1alpha1.ReplicaStatus {
		return func() hwv1alpha1.ReplicaStatus { return f.getPartition(ctx, "orders").Status.Replicas[id] }
	}
	logDir := func(ctx SpecContext, id int) func() string {
		return func() string {
			node := f.getSet(ctx).Status.Nodes[id]
			return fmt.Sprint(node.LogDir, " ", node.LogDirReason)
		}
	}
	silent := func(ctx SpecContext, something func()) { f.silent(ctx, something) }

	Describe("as a whole", func() {
		It("is told of once, also by an operator that starts meanwhile, and so is its return", func(ctx SpecContext) {
			Eventually(logDir(ctx, 1)).Should(Equal("Online "))
			Eventually(minAvailable(ctx, f)).Should(Equal(5))
			const said = "/var/lib/highwater/data is offline (DiskFull): write 0.log: no space left on device"
			f.cluster.LoseDirectory(1, nodefact.DiskFull, said)
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 2)
			condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonLogDirOffline)
			Expect(condition.Message).To(Equal("data directory offline on logs-1: DiskFull (make room: raise spec.storage.size, " +
				"delete topics, or let them keep less; the node comes back by itself)"))
			f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonReplicasUnavailable)
			Expect(logDir(ctx, 1)()).To(Equal("Offline DiskFull"))
			Expect(logDir(ctx, 0)()).To(Equal("Online "))
			Expect(ofSet(ctx, hwv1alpha1.EventLogDirOffline)()).To(ConsistOf(
				"node 1 (pod logs-1) serves none of its replicas: " + said))
			Eventually(minAvailable(ctx, f)).Should(Equal(6), "a node without its directory is missing")

			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonLogDirOffline)
			Expect(replica(ctx, 1)()).To(And(HaveField("State", hwv1alpha1.ReplicaOffline), HaveField("Reason", hwv1alpha1.ReasonLogDirOffline)))
			Expect(ofPartition(ctx, hwv1alpha1.EventISRShrunk)()).To(ConsistOf("ISR is 0, 2: 1 left, LogDirOffline"))

			// The operator starts, first while the node does not answer, then it does.
			silent(ctx, f.cluster.ForgetFacts)
			silent(ctx, func() { f.cluster.LoseDirectory(1, nodefact.DiskFull, said) })
			Expect(ofSet(ctx, hwv1alpha1.EventLogDirOffline)()).To(HaveLen(1))
			Expect(ofSet(ctx, hwv1alpha1.EventLogDirOnline)()).To(BeEmpty())

			f.cluster.Restart(1, directoryOf(f.claim(ctx, 1)))
			f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionTrue, hwv1alpha1.ReasonAllUnfenced)
			Expect(logDir(ctx, 1)()).To(Equal("Online "))
			Expect(ofSet(ctx, hwv1alpha1.EventLogDirOnline)()).To(ConsistOf("node 1 (pod logs-1) uses its data directory again"))

			// A second time is told of again.
			f.cluster.LoseDirectory(1, nodefact.IOError, "")
			condition = f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonLogDirOffline)
			Expect(condition.Message).To(ContainSubstring("IOError (check the disk"))
			Expect(ofSet(ctx, hwv1alpha1.EventLogDirOffline)()).To(HaveLen(2))
		})

		It("is told apart from other nodes that do not serve", func(ctx SpecContext) {
			f.cluster.Fence(0, true)
			f.cluster.LoseDirectory(2, nodefact.ReadOnly, "")
			Eventually(func() string {
				return f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonLogDirOffline).Message
			}).Should(And(ContainSubstring("logs-2: ReadOnly ("), HaveSuffix("; other data nodes that do not serve: logs-0 (Fenced)")))
		})

		It("of a voter says why its pod is not ready, and why the quorum has no leader", func(ctx SpecContext) {
			ready := func(status corev1.ConditionStatus) {
				f.podStatus(ctx, f.pods(ctx)["logs-1001"], corev1.PodStatus{
					Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
				})
			}
			Eventually(logDir(ctx, 4)).Should(Equal("Online "))
			ready(corev1.ConditionFalse)
			f.cluster.LoseDirectory(1001, nodefact.DiskFull, "")
			const said = "data directory offline on logs-1001: DiskFull (make room: raise spec.quorum.storage.size; the node comes back by itself)"
			quorum := func(status metav1.ConditionStatus, reason string) func() string {
				return func() string {
					return f.eventuallySet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, status, reason).Message
				}
			}
			Eventually(quorum(metav1.ConditionTrue, hwv1alpha1.ReasonVotersUnavailable)).Should(HaveSuffix("; " + said))
			Expect(logDir(ctx, 4)()).To(Equal("Offline DiskFull"))
			Expect(ofSet(ctx, hwv1alpha1.EventLogDirOffline)()).To(ConsistOf(HavePrefix("node 1001 (pod logs-1001) does not vote: ")))
			f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionTrue, hwv1alpha1.ReasonAllUnfenced)
			f.cluster.Lose(cluster.NoLeader, time.Now())
			Eventually(quorum(metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader)).Should(HaveSuffix("; " + said))
			silent(ctx, f.cluster.ForgetFacts)
			f.cluster.Begin(1001)
			f.cluster.Follow(1000, 2)
			ready(corev1.ConditionTrue)
			Eventually(logDir(ctx, 4)).Should(Equal("Online "))
			f.eventuallySet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected)
			Expect(ofSet(ctx, hwv1alpha1.EventLogDirOnline)()).To(HaveLen(1))
		})

		It("becomes the reason of its replicas also when the node tells it late", func(ctx SpecContext) {
			f.cluster.Fence(2, true)
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 1)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonNodeFenced)
			f.cluster.LoseDirectory(2, nodefact.DiskFull, "")
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonLogDirOffline)
			silent(ctx, f.cluster.ForgetFacts)
		})
	})

	Describe("in one replica", func() {
		damage := func(node ident.NodeID, isr ...ident.NodeID) {
			f.cluster.Fact(node, "orders", nodefact.Fact{Kind: nodefact.ReplicaDamaged, From: 120, To: 480})
			f.cluster.Directory("orders", 0, node, ident.LostDirectory)
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, isr...)
		}
		counted := func(ctx SpecContext) func() int32 {
			return func() int32 { return f.getSet(ctx).Status.Partitions.Damaged }
		}

		It("is told of with the offsets and what goes on, and so is the refill", func(ctx SpecContext) {
			damage(2, 0, 1)
			const text = "the replica on node 2 is damaged (offsets 120 to 479): it is refilled from node 0, which leads"
			Expect(f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionIntact, metav1.ConditionFalse, hwv1alpha1.ReasonReplicaDamaged).Message).To(Equal(text))
			Expect(ofPartition(ctx, hwv1alpha1.EventReplicaDamaged)()).To(ConsistOf(text))
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonReplicaDamaged)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionTrue, hwv1alpha1.ReasonEnoughInSync)
			Eventually(counted(ctx)).Should(BeEquivalentTo(1))
			condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetPartitionsInSync, metav1.ConditionFalse, hwv1alpha1.ReasonUnderReplicated)
			Expect(condition.Message).To(HaveSuffix(", 1 have a damaged replica"))

			silent(ctx, f.cluster.ForgetFacts)

			f.cluster.Directory("orders", 0, 2, directoryOf(f.claim(ctx, 2)))
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionIntact, metav1.ConditionTrue, hwv1alpha1.ReasonAllReplicasIntact)
			Expect(replica(ctx, 2)().Damage).To(BeNil())
			Expect(ofPartition(ctx, hwv1alpha1.EventReplicaRefilled)()).To(ConsistOf("the replica on node 2 is whole again: what was damaged was refilled"))
			Expect(ofPartition(ctx, hwv1alpha1.EventReplicaDamaged)()).To(HaveLen(1))
			Eventually(counted(ctx)).Should(BeZero())
		})

		It("that is the only one in sync leaves it leading, and the message says what to do", func(ctx SpecContext) {
			damage(0, 0)
			condition := f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionIntact, metav1.ConditionFalse, hwv1alpha1.ReasonReplicaDamaged)
			Expect(condition.Message).To(Equal("the replica on node 0 is damaged (offsets 120 to 479): no whole replica is in sync, " +
				"so it leads on and serves all but that; bring nodes back that have a replica, and it is refilled from one of them"))
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionReady, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected)
		})

		It("is told of without offsets when the node can't tell them, and with them when it can", func(ctx SpecContext) {
			f.cluster.Directory("orders", 0, 1, ident.LostDirectory)
			condition := f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionIntact, metav1.ConditionFalse, hwv1alpha1.ReasonReplicaDamaged)
			Expect(condition.Message).To(HavePrefix("the replica on node 1 is damaged: "))
			f.cluster.Fact(1, "orders", nodefact.Fact{Kind: nodefact.ReplicaDamaged, From: 1, To: 2})
			Eventually(func() *int64 { return replica(ctx, 1)().Damage.ToOffset }).Should(HaveValue(BeEquivalentTo(2)))
			Expect(ofPartition(ctx, hwv1alpha1.EventReplicaDamaged)()).To(HaveLen(1))
		})

		It("is not called refilled when its node came back without the directory", func(ctx SpecContext) {
			damage(2, 0, 1)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionIntact, metav1.ConditionFalse, hwv1alpha1.ReasonReplicaDamaged)
			f.cluster.Directory("orders", 0, 2, ident.UUID{0: 77})
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionIntact, metav1.ConditionTrue, hwv1alpha1.ReasonAllReplicasIntact)
			Consistently(ofPartition(ctx, hwv1alpha1.EventReplicaRefilled)).Should(BeEmpty())
		})
	})
})
