package controllers_test

import (
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/twmb/franz-go/pkg/kerr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

const kindPartition = "Partition"

var _ = Describe("A Partition", func() {
	var f *fixture
	BeforeEach(func(ctx SpecContext) { f = newFixture(ctx) })

	create := func(ctx SpecContext, name string, edit func(*hwv1alpha1.Partition)) {
		GinkgoHelper()
		Expect(api.Create(ctx, f.partition(name, edit))).To(Succeed())
	}
	ready := func(ctx SpecContext, name string) *hwv1alpha1.Partition {
		GinkgoHelper()
		f.eventuallyPartition(ctx, name, hwv1alpha1.PartitionAccepted, metav1.ConditionTrue, hwv1alpha1.ReasonAccepted)
		f.eventuallyPartition(ctx, name, hwv1alpha1.PartitionReady, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected)
		return f.getPartition(ctx, name)
	}
	denied := func(ctx SpecContext, name, reason string) string {
		GinkgoHelper()
		f.eventuallyPartition(ctx, name, hwv1alpha1.PartitionReady, metav1.ConditionFalse, hwv1alpha1.ReasonNotAccepted)
		return f.eventuallyPartition(ctx, name, hwv1alpha1.PartitionAccepted, metav1.ConditionFalse, reason).Message
	}
	remove := func(ctx SpecContext, name string) {
		GinkgoHelper()
		Expect(api.Delete(ctx, f.partition(name, nil))).To(Succeed())
	}
	gone := func(ctx SpecContext, name string) {
		GinkgoHelper()
		Eventually(func() bool {
			return apierrors.IsNotFound(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, &hwv1alpha1.Partition{}))
		}).Should(BeTrue())
	}
	events := func(ctx SpecContext, name, reason string) func() []string {
		return func() []string { return f.events(ctx, kindPartition, name, reason) }
	}
	ofTopic := func(index int32) func(*hwv1alpha1.Partition) {
		return func(p *hwv1alpha1.Partition) { p.Spec.Topic, p.Spec.Index = "t", index }
	}
	calls := func() []string { return f.cluster.Calls() }

	Describe("on its way to the cluster", func() {
		It("is made and mirrored", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "orders", func(p *hwv1alpha1.Partition) {
				p.Spec.MinInSyncReplicas = ptr(int32(2))
				p.Spec.Retention = &hwv1alpha1.Retention{Time: ptr(hwv1alpha1.Duration("1h"))}
			})
			p := ready(ctx, "orders")
			Expect(p.Status.Origin).To(Equal(hwv1alpha1.OriginCreated))
			Expect(p.Status.TopicID).To(Equal(f.cluster.TopicID("orders").String()))
			Expect(p.Status.Topic).To(Equal("orders"))
			Expect(p.Status.Leader).To(HaveValue(BeEquivalentTo(0)))
			Expect(p.Status.Assignment).To(Equal([]int32{0, 1, 2}))
			Expect(p.Status.ISR).To(Equal([]int32{0, 1, 2}))
			Expect(p.Status.MinInSyncReplicas).To(HaveValue(BeEquivalentTo(2)))
			Expect(p.Status.Flush).To(Equal(hwv1alpha1.FlushPageCache))
			Expect(p.Status.DeletionPolicy).To(Equal(hwv1alpha1.DeletionRetain))
			Expect(p.Status.OwnedPartitions).To(HaveValue(BeEquivalentTo(1)))
			Expect(p.Status.Replicas).To(HaveLen(3))
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionTrue, hwv1alpha1.ReasonAllInSync)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionTrue, hwv1alpha1.ReasonEnoughInSync)
			Expect(calls()).To(ConsistOf("create orders: 1 partitions, factor 3, assignments [], configs map[min.insync.replicas:2 retention.ms:3600000]"))
			Expect(events(ctx, "orders", hwv1alpha1.EventPartitionCreated)()).To(ConsistOf("made on nodes 0, 1, 2"))
			Eventually(func() *hwv1alpha1.PartitionCounts { return f.getSet(ctx).Status.Partitions }).
				Should(HaveValue(Equal(hwv1alpha1.PartitionCounts{Total: 1})))
		})

		It("waits for its ReplicaSet", func(ctx SpecContext) {
			create(ctx, "orders", nil)
			Expect(denied(ctx, "orders", hwv1alpha1.ReasonReplicaSetNotFound)).To(ContainSubstring("no ReplicaSet logs"))
			f.start(ctx, nil)
			ready(ctx, "orders")
		})

		It("is made with its siblings in one request", func(ctx SpecContext) {
			for index := range int32(3) {
				create(ctx, fmt.Sprint("t-", index), ofTopic(index))
			}
			f.start(ctx, nil)
			for index := range int32(3) {
				ready(ctx, fmt.Sprint("t-", index))
			}
			Expect(calls()).To(ConsistOf(HavePrefix("create t: 3 partitions")))
			Eventually(func() *int32 { return f.getPartition(ctx, "t-1").Status.OwnedPartitions }).Should(HaveValue(BeEquivalentTo(3)))
		})

		It("is made with its assignment", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "t-0", func(p *hwv1alpha1.Partition) {
				ofTopic(0)(p)
				p.Spec.ReplicationFactor, p.Spec.Assignment = nil, []int32{2, 0}
			})
			Expect(ready(ctx, "t-0").Status.Assignment).To(Equal([]int32{2, 0}))
			create(ctx, "t-1", func(p *hwv1alpha1.Partition) {
				ofTopic(1)(p)
				p.Spec.ReplicationFactor, p.Spec.Assignment = nil, []int32{1, 2}
			})
			Expect(ready(ctx, "t-1").Status.Assignment).To(Equal([]int32{1, 2}))
			Expect(calls()[1]).To(Equal("grow t: 2 partitions, assignments [[1 2]]"))
		})

		It("waits for a lower index, and grows the topic when that is there", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "t-0", ofTopic(0))
			ready(ctx, "t-0")
			create(ctx, "t-2", ofTopic(2))
			Expect(denied(ctx, "t-2", hwv1alpha1.ReasonWaitingForLowerIndex)).To(ContainSubstring("no Partition for index 1"))
			create(ctx, "t-1", ofTopic(1))
			ready(ctx, "t-1")
			ready(ctx, "t-2")
			Expect(calls()).To(HaveLen(2))
			Expect(calls()[1]).To(HavePrefix("grow t: 3 partitions"))
		})

		It("yields to an older one, and follows it", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "a-first", func(p *hwv1alpha1.Partition) {
				p.Spec.Topic, p.Spec.DeletionPolicy = "t", ptr(hwv1alpha1.DeletionDelete)
			})
			ready(ctx, "a-first")
			create(ctx, "b-second", func(p *hwv1alpha1.Partition) {
				p.Spec.Topic, p.Spec.DeletionPolicy = "t", ptr(hwv1alpha1.DeletionDelete)
			})
			Expect(denied(ctx, "b-second", hwv1alpha1.ReasonAlreadyClaimed)).To(ContainSubstring("Partition a-first"))
			Expect(f.getPartition(ctx, "b-second").Status.Leader).To(BeNil())
			remove(ctx, "a-first")
			gone(ctx, "a-first")
			Expect(ready(ctx, "b-second").Status.Origin).To(Equal(hwv1alpha1.OriginAdopted))
			Expect(calls()).NotTo(ContainElement(HavePrefix("delete")))
		})

		It("may not contradict index 0", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "t-0", func(p *hwv1alpha1.Partition) { ofTopic(0)(p); p.Spec.MinInSyncReplicas = ptr(int32(2)) })
			create(ctx, "t-1", func(p *hwv1alpha1.Partition) { ofTopic(1)(p); p.Spec.MinInSyncReplicas = ptr(int32(1)) })
			Expect(denied(ctx, "t-1", hwv1alpha1.ReasonConflictingConfig)).To(HavePrefix("spec.minInSyncReplicas differs from Partition t-0"))
			change(ctx, f.getPartition(ctx, "t-1"), func(p *hwv1alpha1.Partition) { p.Spec.MinInSyncReplicas = nil })
			Expect(ready(ctx, "t-1").Status.MinInSyncReplicas).To(HaveValue(BeEquivalentTo(2)))
		})

		It("says which key of its config is wrong", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "orders", func(p *hwv1alpha1.Partition) {
				p.Spec.Config = map[string]hwv1alpha1.ConfigValue{"segment.bites": "1"}
			})
			Expect(denied(ctx, "orders", hwv1alpha1.ReasonInvalidSpec)).To(ContainSubstring("spec.config[segment.bites]"))
			Expect(calls()).To(BeEmpty())
		})

		It("is configured, and what it no longer says goes back to the default", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "orders", func(p *hwv1alpha1.Partition) { p.Spec.MinInSyncReplicas = ptr(int32(2)) })
			ready(ctx, "orders")
			change(ctx, f.getPartition(ctx, "orders"), func(p *hwv1alpha1.Partition) {
				p.Spec.MinInSyncReplicas = nil
				p.Spec.Config = map[string]hwv1alpha1.ConfigValue{"max.message.bytes": "2000000", "flush.messages": "1"}
			})
			Eventually(calls).Should(ContainElement("alter orders: set map[flush.messages:1 max.message.bytes:2000000], remove [min.insync.replicas]"))
			Eventually(func() hwv1alpha1.FlushPolicy { return f.getPartition(ctx, "orders").Status.Flush }).Should(Equal(hwv1alpha1.FlushAlways))
			Eventually(func() *int32 { return f.getPartition(ctx, "orders").Status.MinInSyncReplicas }).Should(HaveValue(BeEquivalentTo(1)))
		})

		It("tells what the controller refused, and tries again when something changes", func(ctx SpecContext) {
			f.start(ctx, nil)
			f.cluster.Refuse(&cluster.RefusedError{Code: kerr.InvalidReplicationFactor, Message: "3 replicas on 2 nodes"})
			create(ctx, "orders", nil)
			Expect(denied(ctx, "orders", hwv1alpha1.ReasonRefused)).To(Equal("INVALID_REPLICATION_FACTOR: 3 replicas on 2 nodes"))
			f.cluster.Refuse(nil)
			Expect(ready(ctx, "orders").Status.Origin).To(Equal(hwv1alpha1.OriginCreated))
		})

		It("takes a topic that somebody made while it was refused for somebody's", func(ctx SpecContext) {
			f.start(ctx, nil)
			f.cluster.Refuse(&cluster.RefusedError{Code: kerr.PolicyViolation})
			create(ctx, "orders", nil)
			denied(ctx, "orders", hwv1alpha1.ReasonRefused)
			f.cluster.MakeTopic(cluster.NewTopic{Name: "orders", Partitions: 1, ReplicationFactor: 3})
			f.cluster.Refuse(nil)
			Expect(ready(ctx, "orders").Status.Origin).To(Equal(hwv1alpha1.OriginAdopted))
		})

		It("says that replicas can't be moved yet", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "orders", nil)
			ready(ctx, "orders")
			change(ctx, f.getPartition(ctx, "orders"), func(p *hwv1alpha1.Partition) { p.Spec.ReplicationFactor = ptr(int32(2)) })
			Expect(denied(ctx, "orders", hwv1alpha1.ReasonAssignmentDiffers)).To(ContainSubstring("not supported by this version"))
			Expect(f.getPartition(ctx, "orders").Status.ISR).To(Equal([]int32{0, 1, 2}), "what is committed is told all the same")
		})
	})

	Describe("at its end", func() {
		policy := func(index int32, policy hwv1alpha1.DeletionPolicy) func(*hwv1alpha1.Partition) {
			return func(p *hwv1alpha1.Partition) { ofTopic(index)(p); p.Spec.DeletionPolicy = &policy }
		}

		It("takes its topic along with the last, by the topic's id", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			create(ctx, "t-1", func(p *hwv1alpha1.Partition) { ofTopic(1)(p) })
			ready(ctx, "t-0")
			ready(ctx, "t-1")
			Eventually(func() *int32 { return f.getPartition(ctx, "t-1").Status.OwnedPartitions }).Should(HaveValue(BeEquivalentTo(2)))
			Expect(f.getPartition(ctx, "t-1").Status.DeletionPolicy).To(Equal(hwv1alpha1.DeletionDelete))
			id := f.cluster.TopicID("t")
			remove(ctx, "t-0")
			gone(ctx, "t-0")
			Expect(events(ctx, "t-0", hwv1alpha1.EventTopicKept)()).To(ConsistOf(ContainSubstring("Partition t-1 of the same topic remains")))
			Expect(calls()).NotTo(ContainElement(HavePrefix("delete")))
			remove(ctx, "t-1")
			gone(ctx, "t-1")
			Expect(calls()).To(ContainElement("delete " + id.String()))
			Expect(events(ctx, "t-1", hwv1alpha1.EventTopicDeleted)()).To(HaveLen(1))
		})

		It("takes a topic along that was made just before, and that its status never told of", func(ctx SpecContext) {
			f.start(ctx, nil)
			f.cluster.OnCreated(func() {
				defer GinkgoRecover()
				remove(ctx, "t-0")
			})
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			gone(ctx, "t-0")
			Expect(calls()).To(HaveLen(2))
			Expect(calls()[1]).To(HavePrefix("delete "))
			Expect(events(ctx, "t-0", hwv1alpha1.EventTopicDeleted)()).To(HaveLen(1))
			_, found := f.cluster.Partition("t", 0)
			Expect(found).To(BeFalse())
		})

		It("takes a topic along that comes after it was deleted, of a request that nobody answered", func(ctx SpecContext) {
			f.start(ctx, nil)
			f.cluster.Refuse(errors.New("no answer"))
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			Eventually(calls).Should(ContainElement(HavePrefix("create t")))
			remove(ctx, "t-0")
			Consistently(func() error {
				return api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "t-0"}, &hwv1alpha1.Partition{})
			}).Should(Succeed())
			f.cluster.Refuse(nil) // not before: a pass that does not know of the deletion yet may ask again
			f.cluster.MakeTopic(cluster.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 3})
			gone(ctx, "t-0")
			Expect(calls()).To(ContainElement(HavePrefix("delete ")))
		})

		It("waits no longer than a request lives for one that never comes", func(ctx SpecContext) {
			f.start(ctx, nil)
			f.cluster.Refuse(errors.New("no answer"))
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			Eventually(calls).Should(ContainElement(HavePrefix("create t")))
			remove(ctx, "t-0")
			gone(ctx, "t-0")
			Expect(calls()).NotTo(ContainElement(HavePrefix("delete ")))
		})

		It("keeps a topic that is not as it would have been made", func(ctx SpecContext) {
			f.start(ctx, nil)
			f.cluster.Refuse(errors.New("no answer"))
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			Eventually(calls).Should(ContainElement(HavePrefix("create t")))
			remove(ctx, "t-0")
			f.cluster.Refuse(nil)
			f.cluster.MakeTopic(cluster.NewTopic{Name: "t", Partitions: 2, ReplicationFactor: 3})
			gone(ctx, "t-0")
			Expect(calls()).NotTo(ContainElement(HavePrefix("delete ")))
			Expect(events(ctx, "t-0", hwv1alpha1.EventTopicKept)()).To(HaveLen(1))
		})

		It("keeps its topic under Retain", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "t-0", ofTopic(0))
			ready(ctx, "t-0")
			remove(ctx, "t-0")
			gone(ctx, "t-0")
			Expect(calls()).NotTo(ContainElement(HavePrefix("delete")))
			Expect(events(ctx, "t-0", hwv1alpha1.EventTopicKept)()).To(ConsistOf(ContainSubstring("deletionPolicy is Retain")))
		})

		It("keeps a topic that was there before", func(ctx SpecContext) {
			f.start(ctx, nil)
			f.cluster.MakeTopic(cluster.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 3, Configs: map[string]string{"segment.bytes": "2000000"}})
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			Expect(ready(ctx, "t-0").Status.Origin).To(Equal(hwv1alpha1.OriginAdopted))
			Expect(events(ctx, "t-0", hwv1alpha1.EventPartitionAdopted)()).To(HaveLen(1))
			remove(ctx, "t-0")
			gone(ctx, "t-0")
			Expect(calls()).To(BeEmpty(), "neither deleted nor configured otherwise")
		})

		It("keeps a topic that somebody else gave another partition", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			ready(ctx, "t-0")
			f.cluster.Commit(&metadata.PartitionRecord{TopicID: f.cluster.TopicID("t"), PartitionID: 1, Replicas: nodes(0), ISR: nodes(0), Leader: 0, Directories: noDirectories(1)})
			remove(ctx, "t-0")
			gone(ctx, "t-0")
			Expect(calls()).NotTo(ContainElement(HavePrefix("delete")))
			Expect(events(ctx, "t-0", hwv1alpha1.EventTopicKept)()).To(HaveLen(1))
		})

		It("does not wait for a ReplicaSet that is gone", func(ctx SpecContext) {
			rs := f.start(ctx, nil)
			create(ctx, "t-0", policy(0, hwv1alpha1.DeletionDelete))
			ready(ctx, "t-0")
			Expect(api.Delete(ctx, rs)).To(Succeed())
			denied(ctx, "t-0", hwv1alpha1.ReasonReplicaSetNotFound)
			remove(ctx, "t-0")
			gone(ctx, "t-0")
		})

		It("is not made again when somebody else deleted its topic", func(ctx SpecContext) {
			f.start(ctx, nil)
			create(ctx, "orders", nil)
			ready(ctx, "orders")
			f.cluster.RemoveTopic(f.cluster.TopicID("orders"))
			denied(ctx, "orders", hwv1alpha1.ReasonTopicDeletedElsewhere)
			Expect(f.getPartition(ctx, "orders").Status.ISR).To(BeEmpty())
			f.cluster.MakeTopic(cluster.NewTopic{Name: "orders", Partitions: 1, ReplicationFactor: 3})
			Consistently(func() string {
				return string(f.getPartition(ctx, "orders").Status.Origin) + f.getPartition(ctx, "orders").Status.Conditions[0].Reason
			}).Should(Equal("Created" + hwv1alpha1.ReasonTopicDeletedElsewhere))
			Expect(calls()).To(HaveLen(1))
		})
	})

	Describe("as the cluster goes", func() {
		start := func(ctx SpecContext) {
			GinkgoHelper()
			f.start(ctx, nil)
			create(ctx, "orders", func(p *hwv1alpha1.Partition) { p.Spec.MinInSyncReplicas = ptr(int32(2)) })
			ready(ctx, "orders")
		}
		replica := func(ctx SpecContext, id int) hwv1alpha1.ReplicaStatus {
			return f.getPartition(ctx, "orders").Status.Replicas[id]
		}

		It("tells of a follower that lagged, with the leader's reason and numbers", func(ctx SpecContext) {
			start(ctx)
			before, _ := f.cluster.Partition("orders", 0)
			f.cluster.Fact(0, "orders", nodefact.Fact{Replica: 2, PartitionEpoch: before.PartitionEpoch + 1, Reason: cluster.ReasonLagTimeExceeded, LagOffsets: 120, LagMillis: 4300})
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 1)
			condition := f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonLagTimeExceeded)
			Expect(condition.Message).To(Equal("replicas out of sync: 2 (LagTimeExceeded)"))
			r := replica(ctx, 2)
			Expect(r.State).To(Equal(hwv1alpha1.ReplicaCatchingUp))
			Expect(r.LagOffsets).To(HaveValue(BeEquivalentTo(120)))
			Expect(r.LagMillis).To(HaveValue(BeEquivalentTo(4300)))
			Eventually(events(ctx, "orders", hwv1alpha1.EventISRShrunk)).Should(ConsistOf("ISR is 0, 1: 2 left, LagTimeExceeded: 4.3s and 120 records behind"))
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionTrue, hwv1alpha1.ReasonEnoughInSync)
			f.eventuallySet(ctx, hwv1alpha1.ReplicaSetPartitionsInSync, metav1.ConditionFalse, hwv1alpha1.ReasonUnderReplicated)

			// Fenced afterwards: it is offline now, and left because it lagged.
			f.cluster.Fence(2, true)
			Eventually(func() hwv1alpha1.ReplicaState { return replica(ctx, 2).State }).Should(Equal(hwv1alpha1.ReplicaOffline))
			Expect(replica(ctx, 2).Reason).To(Equal(hwv1alpha1.ReasonLagTimeExceeded))

			f.cluster.Fence(2, false)
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 1, 2)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionTrue, hwv1alpha1.ReasonAllInSync)
			Expect(replica(ctx, 2).Reason).To(BeEmpty())
			Expect(events(ctx, "orders", hwv1alpha1.EventISRExpanded)()).To(ConsistOf("ISR is 0, 1, 2: 2 joined"))
			Expect(events(ctx, "orders", hwv1alpha1.EventISRShrunk)()).To(HaveLen(1))
		})

		It("does not wait with the status for a reason that comes late, and tells it in the event", func(ctx SpecContext) {
			start(ctx)
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 1)
			after, _ := f.cluster.Partition("orders", 0)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonOutOfSync)
			f.cluster.Fact(0, "orders", nodefact.Fact{Replica: 2, PartitionEpoch: after.PartitionEpoch, Reason: cluster.ReasonLagTimeExceeded, LagOffsets: 1, LagMillis: 4000})
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonLagTimeExceeded)
			Eventually(events(ctx, "orders", hwv1alpha1.EventISRShrunk)).Should(ConsistOf("ISR is 0, 1: 2 left, LagTimeExceeded: 4s and 1 records behind"))
		})

		It("tells of a shrink without a reason after half a second", func(ctx SpecContext) {
			start(ctx)
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 1)
			Eventually(events(ctx, "orders", hwv1alpha1.EventISRShrunk)).Should(ConsistOf("ISR is 0, 1: 2 left, OutOfSync"))
		})

		It("tells fencing from lagging, and when writes are refused", func(ctx SpecContext) {
			start(ctx)
			for _, id := range nodes(1, 2) {
				f.cluster.Fence(id, true)
			}
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionFalse, hwv1alpha1.ReasonNodeFenced)
			condition := f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionFalse, hwv1alpha1.ReasonNotEnoughInSync)
			Expect(condition.Message).To(ContainSubstring("1 replicas are in sync (0) and minInSyncReplicas is 2"))
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionReady, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected)
			Expect(events(ctx, "orders", hwv1alpha1.EventISRShrunk)()).To(ConsistOf("ISR is 0: 1 left, NodeFenced; 2 left, NodeFenced"))
			Expect(events(ctx, "orders", hwv1alpha1.EventUnderMinISR)()).To(HaveLen(1))
			f.eventuallySet(ctx, hwv1alpha1.ReplicaSetPartitionsInSync, metav1.ConditionFalse, hwv1alpha1.ReasonUnderMinISR)

			for _, id := range nodes(1, 2) {
				f.cluster.Fence(id, false)
			}
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 1, 2)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionTrue, hwv1alpha1.ReasonEnoughInSync)
			Expect(events(ctx, "orders", hwv1alpha1.EventMinISRRestored)()).To(HaveLen(1))
		})

		It("tells of leaders that come and go", func(ctx SpecContext) {
			start(ctx)
			f.cluster.ISR("orders", 0, 1, 1, 2)
			Eventually(events(ctx, "orders", hwv1alpha1.EventLeaderElected)).Should(ConsistOf("node 1 leads in epoch 1"))
			f.cluster.ISR("orders", 0, -1, 1)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionReady, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader)
			Expect(events(ctx, "orders", hwv1alpha1.EventLeaderLost)()).To(HaveLen(1))
			Expect(f.getPartition(ctx, "orders").Status.Leader).To(HaveValue(BeEquivalentTo(-1)))
			f.cluster.Commit(&metadata.PartitionChangeRecord{TopicID: f.cluster.TopicID("orders"), ISR: nodes(2), Leader: 2, LeaderRecoveryState: metadata.Recovering})
			Eventually(events(ctx, "orders", hwv1alpha1.EventUncleanLeaderElected)).Should(HaveLen(1))
		})

		It("follows a cluster that took the place of the one that its status speaks of", func(ctx SpecContext) {
			start(ctx)
			Expect(f.getPartition(ctx, "orders").Status.ClusterID).To(Equal(f.getSet(ctx).Status.ClusterID))
			told := func(clusterID string) {
				GinkgoHelper()
				Eventually(func() error {
					p := f.getPartition(ctx, "orders")
					p.Status.AsOf, p.Status.ClusterID = &hwv1alpha1.MetadataPosition{Epoch: 9, Offset: 1_000_000}, clusterID
					return api.Status().Update(ctx, p)
				}).Should(Succeed())
			}
			isr := func() []int32 { return f.getPartition(ctx, "orders").Status.ISR }
			told(f.getSet(ctx).Status.ClusterID)
			f.cluster.ISR("orders", 0, metadata.NoLeaderChange, 0, 1)
			Consistently(isr).Should(Equal([]int32{0, 1, 2}), "an older state of the same cluster is never written over a newer one")
			told("AAAAAAAAAAAAAAAAAAAAAQ")
			Eventually(isr).Should(Equal([]int32{0, 1}))
			Expect(f.getPartition(ctx, "orders").Status.AsOf.Offset).To(BeNumerically("<", 1_000_000))
			Expect(f.getPartition(ctx, "orders").Status.ClusterID).To(Equal(f.getSet(ctx).Status.ClusterID))
		})

		It("says after fifteen seconds without a quorum that its state is not known, and keeps the rest", func(ctx SpecContext) {
			start(ctx)
			f.cluster.Lose(cluster.NoLeader, time.Now())
			f.eventuallySet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader)
			Consistently(func() string { return f.getPartition(ctx, "orders").Status.Conditions[1].Reason }).Should(Equal(hwv1alpha1.ReasonLeaderElected))
			f.cluster.Lose(cluster.NoLeader, time.Now().Add(-20*time.Second))
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionReady, metav1.ConditionUnknown, hwv1alpha1.ReasonMetadataUnavailable)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionInSync, metav1.ConditionTrue, hwv1alpha1.ReasonAllInSync)
			f.eventuallyPartition(ctx, "orders", hwv1alpha1.PartitionAccepted, metav1.ConditionTrue, hwv1alpha1.ReasonAccepted)
			f.cluster.Follow(1001, 2)
			ready(ctx, "orders")
		})

		It("is silent when nothing changes", func(ctx SpecContext) {
			start(ctx)
			Eventually(minAvailable(ctx, f)).Should(Equal(5))
			before := f.versions(ctx)
			for range 20 {
				f.cluster.Commit(&metadata.NoOpRecord{})
				f.cluster.Follow(1000, 1)
			}
			Consistently(func() map[string]string { return f.versions(ctx) }).Should(Equal(before))
			Expect(calls()).To(HaveLen(1))
		})
	})
})
