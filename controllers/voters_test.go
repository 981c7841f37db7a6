package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// voters changes spec.quorum.voters as a person does.
func (f *fixture) voters(ctx context.Context, n int32) *hwv1alpha1.ReplicaSet {
	GinkgoHelper()
	rs := f.getSet(ctx)
	change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Quorum.Voters = n })
	return rs
}

// follower is a node that follows the metadata log, as the quorum's leader sees it.
func (f *fixture) follower(ctx context.Context, id int32, lag time.Duration) cluster.ReplicaState {
	GinkgoHelper()
	return cluster.ReplicaState{Voter: cluster.Voter{ID: ident.NodeID(id), DirectoryID: directoryOf(f.claim(ctx, id))}, LogEndOffset: 5, Lag: lag}
}

// formatted plays a voter that has formatted its volume and waits for the end of its permit.
func (f *fixture) formatted(ctx context.Context, ids ...int32) {
	GinkgoHelper()
	for _, id := range ids {
		f.cluster.Opened(ident.NodeID(id), directoryOf(f.claim(ctx, id)))
	}
	for _, id := range ids {
		Eventually(func() map[string]string { return f.pods(ctx)[fmt.Sprintf("logs-%d", id)].Annotations }).ShouldNot(HaveKey(specs.AnnotationFormatPermit))
	}
}

// changes are the admin calls that change the voter set.
func (f *fixture) changes() []string {
	var all []string
	for _, call := range f.cluster.Calls() {
		if words := strings.Fields(call); words[1] == "voter" {
			all = append(all, words[0]+" "+words[2])
		}
	}
	return slices.Compact(all) // a call may be repeated before the set is seen to have changed
}

func (f *fixture) eventuallyVoters(ctx context.Context, ids ...int32) {
	GinkgoHelper()
	Eventually(func() []int32 { return f.getSet(ctx).Status.Quorum.Voters }).Should(Equal(ids))
}

func (f *fixture) uids(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	all := map[string]types.UID{}
	for name, pod := range f.pods(ctx) {
		all[name] = pod.UID
	}
	return all
}

var _ = Describe("The voters of a ReplicaSet", func() {
	var f *fixture
	BeforeEach(func(ctx SpecContext) { f = newFixture(ctx) })

	one := func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Quorum.Voters = 1 }

	It("come one at a time, each when it has caught up, and believe in no voter set before", func(ctx SpecContext) {
		f.start(ctx, one)
		before := f.uids(ctx)
		rs := f.voters(ctx, 3)
		f.eventuallyPods(ctx, specs.Nodes(rs))
		for _, id := range []int32{1001, 1002} {
			claim := f.claim(ctx, id)
			Expect(claim.Annotations).To(HaveKeyWithValue(specs.AnnotationJoins, "true"))
			Expect(claim.Annotations).NotTo(HaveKey(specs.AnnotationFirstVoters))
			Expect(f.pods(ctx)[fmt.Sprintf("logs-%d", id)].Annotations).To(HaveKeyWithValue(specs.AnnotationFormatPermit, directoryOf(claim).String()))
		}
		Expect(f.claim(ctx, 1000).Annotations).To(HaveKeyWithValue(specs.AnnotationFirstVoters, "1"))
		Eventually(func() int {
			var config corev1.ConfigMap
			Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "logs-nodes"}, &config)).To(Succeed())
			return strings.Count(config.Data["node.yaml"], "joins: true")
		}).Should(Equal(2), "a fresh volume must not be formatted with a voter set that it is in")

		f.ready(ctx)
		f.formatted(ctx, 1001, 1002)
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVoterCatchingUp)
		Expect(condition.Message).To(ContainSubstring("voter 1001"))
		f.cluster.SetObservers(f.follower(ctx, 1001, time.Minute), f.follower(ctx, 1002, -1))
		Consistently(f.changes).WithTimeout(1500 * time.Millisecond).Should(BeEmpty())
		Expect(f.getSet(ctx).Status.Quorum.Voters).To(Equal([]int32{1000}))
		Expect(f.getSet(ctx).Status.Quorum.Observers).To(Equal([]int32{1001, 1002}))

		f.cluster.SetObservers(f.follower(ctx, 1001, 0), f.follower(ctx, 1002, -1))
		f.eventuallyVoters(ctx, 1000, 1001)
		Eventually(func() string {
			return meta.FindStatusCondition(f.getSet(ctx).Status.Conditions, hwv1alpha1.ReplicaSetProgressing).Message
		}).Should(ContainSubstring("voter 1002"))
		f.cluster.SetObservers(f.follower(ctx, 1002, 0))
		f.eventuallyVoters(ctx, 1000, 1001, 1002)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonSettled)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, hwv1alpha1.ReasonAllServing)
		Expect(f.changes()).To(Equal([]string{"add 1001", "add 1002"}))
		Expect(f.cluster.Calls()).To(ContainElement(fmt.Sprintf("add voter 1001 %s at logs-1001.logs-nodes.%s.svc:9093", directoryOf(f.claim(ctx, 1001)), f.namespace)))
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventVoterAdded)).To(ConsistOf(
			"node 1001 votes in the metadata quorum, which has the voters 1000, 1001",
			"node 1002 votes in the metadata quorum, which has the voters 1000, 1001, 1002"))
		for name, uid := range before {
			Expect(f.uids(ctx)).To(HaveKeyWithValue(name, uid), "nobody else is touched")
		}
		targets := f.cluster.Targets()
		Expect(targets[len(targets)-1].Voters).To(HaveLen(3))
		Expect(f.getSet(ctx).Status.Quorum.Observers).To(BeEmpty())

		// At rest nobody is asked and nothing is written.
		calls, version := len(f.cluster.Calls()), f.getSet(ctx).ResourceVersion
		Consistently(func() []any { return []any{len(f.cluster.Calls()), f.getSet(ctx).ResourceVersion} }).
			WithTimeout(1500 * time.Millisecond).Should(Equal([]any{calls, version}))
	})

	It("that are wanted before the first ones have formed a quorum join it all the same", func(ctx SpecContext) {
		Expect(api.Create(ctx, f.set(one))).To(Succeed())
		f.eventuallyPods(ctx, specs.Nodes(f.set(one)))
		rs := f.voters(ctx, 3)
		f.eventuallyPods(ctx, specs.Nodes(rs))
		Expect(f.claim(ctx, 1001).Annotations).To(HaveKeyWithValue(specs.AnnotationJoins, "true"))
		Expect(f.claim(ctx, 1000).Annotations).To(HaveKeyWithValue(specs.AnnotationFirstVoters, "1"))
	})

	It("go one at a time, the leader last, and their pods after them; kept volumes come back as they are", func(ctx SpecContext) {
		f.start(ctx, nil)
		f.cluster.Follow(1002, 2)
		directory := directoryOf(f.claim(ctx, 1001))
		f.voters(ctx, 1)
		f.eventuallyVoters(ctx, 1000)
		Expect(f.changes()).To(Equal([]string{"remove 1001", "remove 1002"}))
		f.eventuallyGone(ctx, "logs-1001", "logs-1002")
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonSettled)
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventVoterRemoved)).To(ConsistOf(
			"node 1001 votes in the metadata quorum no more, which has the voters 1000, 1002",
			"node 1002 votes in the metadata quorum no more, which has the voters 1000"))
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventNodeRetired)).To(HaveLen(2))
		Expect(directoryOf(f.claim(ctx, 1001))).To(Equal(directory), "under Retain the volume stays")

		rs := f.voters(ctx, 3)
		f.eventuallyPods(ctx, specs.Nodes(rs))
		Expect(f.pods(ctx)["logs-1001"].Annotations).NotTo(HaveKey(specs.AnnotationFormatPermit))
		Expect(directoryOf(f.claim(ctx, 1001))).To(Equal(directory))
		f.ready(ctx)
		f.cluster.SetObservers(f.follower(ctx, 1001, 0), f.follower(ctx, 1002, 0))
		f.eventuallyVoters(ctx, 1000, 1001, 1002)
	})

	It("are not let go of while the quorum's leader counts on them, though their coming is not committed", func(ctx SpecContext) {
		f.start(ctx, func(rs *hwv1alpha1.ReplicaSet) {
			rs.Spec.Quorum.Voters, rs.Spec.Storage.Retention = 1, ptr(hwv1alpha1.VolumesDelete)
		})
		rs := f.voters(ctx, 3)
		f.eventuallyPods(ctx, specs.Nodes(rs))
		f.ready(ctx)
		first, second := f.follower(ctx, 1000, 0), f.follower(ctx, 1001, 0)
		f.cluster.AppendVoters(first, second)
		f.voters(ctx, 1)
		f.eventuallyGone(ctx, "logs-1002")
		Consistently(func() *metav1.Time { return ptr(f.pods(ctx)["logs-1001"]).DeletionTimestamp }).
			WithTimeout(1500*time.Millisecond).Should(BeNil(), "without it the appended voter set has no majority")
		Expect(f.pods(ctx)).To(HaveKey("logs-1001"))
		Expect(f.claim(ctx, 1001).DeletionTimestamp).To(BeNil())

		f.cluster.SetVoters(first, second)
		f.eventuallyVoters(ctx, 1000)
		f.eventuallyGone(ctx, "logs-1001")
	})

	It("take their volumes along under Delete", func(ctx SpecContext) {
		f.start(ctx, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Storage.Retention = ptr(hwv1alpha1.VolumesDelete) })
		before := directoryOf(f.claim(ctx, 1002))
		f.voters(ctx, 1)
		f.eventuallyGone(ctx, "logs-1001", "logs-1002")
		Eventually(func() bool { return f.claim(ctx, 1002).DeletionTimestamp != nil }).Should(BeTrue())
		Expect(f.claim(ctx, 0).DeletionTimestamp).To(BeNil())
		Expect(f.claim(ctx, 1000).DeletionTimestamp).To(BeNil())
		// Wanted again, it is another volume, which joins under an identity of its own.
		for _, id := range []int32{1001, 1002} {
			change(ctx, f.claim(ctx, id), func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
		}
		rs := f.voters(ctx, 3)
		f.eventuallyPods(ctx, specs.Nodes(rs))
		Expect(directoryOf(f.claim(ctx, 1002))).NotTo(Equal(before))
		Expect(f.claim(ctx, 1002).Annotations).To(HaveKeyWithValue(specs.AnnotationJoins, "true"))
	})

	It("stay while the rest would have no majority that is caught up", func(ctx SpecContext) {
		f.start(ctx, nil)
		f.cluster.SetVoters(f.follower(ctx, 1000, time.Hour), f.follower(ctx, 1001, 0), f.follower(ctx, 1002, 0))
		f.voters(ctx, 1)
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVoterChangeBlocked)
		Expect(condition.Message).To(ContainSubstring("voter 1002 can't leave"))
		Consistently(f.changes).Should(BeEmpty())
		Expect(f.pods(ctx)).To(HaveKey("logs-1001"))
		f.cluster.SetVoters(f.follower(ctx, 1000, 0), f.follower(ctx, 1001, 0), f.follower(ctx, 1002, 0))
		f.eventuallyVoters(ctx, 1000)
	})

	It("wait for a leader that says no, with its words, and come in the end", func(ctx SpecContext) {
		f.start(ctx, one)
		rs := f.voters(ctx, 3)
		f.eventuallyPods(ctx, specs.Nodes(rs))
		f.ready(ctx)
		f.formatted(ctx, 1001, 1002)
		f.cluster.HoldVoters(errors.New("the new voter does not answer"))
		f.cluster.SetObservers(f.follower(ctx, 1001, 0), f.follower(ctx, 1002, 0))
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVoterCatchingUp)
		Eventually(func() string {
			condition = f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVoterCatchingUp)
			return condition.Message
		}).Should(ContainSubstring("the new voter does not answer"))
		f.cluster.HoldVoters(nil)
		f.eventuallyVoters(ctx, 1000, 1001, 1002)
	})

	It("that lost their volume join again under another directory when their claim is deleted", func(ctx SpecContext) {
		f.start(ctx, nil)
		old := directoryOf(f.claim(ctx, 1001))
		f.volumeLost(ctx, "logs-1001")
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonVolumeLost)
		Expect(condition.Message).To(ContainSubstring("delete claim data-logs-1001"))
		Consistently(f.changes).Should(BeEmpty(), "nobody gave the volume up yet")

		held := f.claim(ctx, 1001)
		change(ctx, held, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })
		Expect(api.Delete(ctx, held)).To(Succeed())
		f.eventuallyGone(ctx, "logs-1001") // it keeps the claim from going
		change(ctx, held, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
		Eventually(func() []string { return f.changes() }).Should(Equal([]string{"remove 1001"}))
		Expect(f.cluster.Calls()).To(ContainElement("remove voter 1001 " + old.String()))
		f.eventuallyVoters(ctx, 1000, 1002)
		f.eventuallyPods(ctx, specs.Nodes(f.getSet(ctx)))
		claim := f.claim(ctx, 1001)
		Expect(directoryOf(claim)).NotTo(Equal(old))
		Expect(claim.Annotations).To(HaveKeyWithValue(specs.AnnotationJoins, "true"))
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventVoterReplaced)).To(HaveLen(1))

		f.ready(ctx)
		f.formatted(ctx, 1001)
		f.cluster.SetObservers(f.follower(ctx, 1001, 0))
		f.eventuallyVoters(ctx, 1000, 1001, 1002)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonSettled)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, hwv1alpha1.ReasonAllServing)
	})

	It("that are data nodes join when their pod is made as a voter's, and stay data nodes when they leave", func(ctx SpecContext) {
		f.start(ctx, func(rs *hwv1alpha1.ReplicaSet) {
			rs.Spec.Quorum.Mode, rs.Spec.Quorum.Voters = hwv1alpha1.QuorumCombined, 1
		})
		f.voters(ctx, 3)
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVotersChanging)
		Expect(condition.Message).To(ContainSubstring("delete pod logs-1"))
		for _, name := range []string{"logs-1", "logs-2"} {
			f.removePod(ctx, name)
		}
		f.eventuallyPods(ctx, specs.Nodes(f.getSet(ctx)))
		f.ready(ctx)
		f.cluster.SetObservers(f.follower(ctx, 1, 0), f.follower(ctx, 2, 0))
		f.eventuallyVoters(ctx, 0, 1, 2)
		f.voters(ctx, 1)
		f.eventuallyVoters(ctx, 0)
		Consistently(func() map[string]corev1.Pod { return f.pods(ctx) }).Should(And(HaveKey("logs-1"), HaveKey("logs-2")))
	})
})

// eventuallyGone waits until pods are deleted, and lets them go as the kubelet does.
func (f *fixture) eventuallyGone(ctx context.Context, names ...string) {
	GinkgoHelper()
	Eventually(func() []string {
		var left []string
		for name, pod := range f.pods(ctx) {
			switch {
			case !slices.Contains(names, name):
			case pod.DeletionTimestamp.IsZero():
				left = append(left, name)
			default:
				Expect(client.IgnoreNotFound(api.Delete(ctx, &pod, client.GracePeriodSeconds(0)))).To(Succeed())
			}
		}
		return left
	}).Should(BeEmpty())
}
