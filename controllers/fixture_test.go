package controllers_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/clustertest"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// fixture is a namespace with a cluster behind every ReplicaSet in it.
type fixture struct {
	namespace string
	cluster   *clustertest.Cluster
}

var namespaces int

func newFixture(ctx context.Context) *fixture {
	namespaces++
	f := &fixture{namespace: fmt.Sprintf("t%d", namespaces)}
	Expect(api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: f.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})).To(Succeed())
	f.cluster = clusters.of(f.namespace)
	DeferCleanup(func(ctx SpecContext) {
		// Nothing collects garbage here, and nothing should be reconciled behind the next spec.
		Expect(api.DeleteAllOf(ctx, &hwv1alpha1.ReplicaSet{}, client.InNamespace(f.namespace))).To(Succeed())
		Expect(api.DeleteAllOf(ctx, &hwv1alpha1.Partition{}, client.InNamespace(f.namespace))).To(Succeed())
		Eventually(func(g Gomega) {
			var left hwv1alpha1.PartitionList
			g.Expect(api.List(ctx, &left, client.InNamespace(f.namespace))).To(Succeed())
			g.Expect(left.Items).To(BeEmpty(), "finalizers always end")
			g.Expect(f.cluster.Connections()).To(BeZero(), "a ReplicaSet that is gone has no connection")
		}).WithContext(ctx).Should(Succeed())
	})
	return f
}

func ptr[T any](v T) *T { return &v }

func (f *fixture) set(change func(*hwv1alpha1.ReplicaSet)) *hwv1alpha1.ReplicaSet {
	rs := &hwv1alpha1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: f.namespace},
		Spec: hwv1alpha1.ReplicaSetSpec{
			Replicas: 3,
			Quorum:   hwv1alpha1.QuorumSpec{Voters: 3},
			Storage:  hwv1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
	if change != nil {
		change(rs)
	}
	return rs
}

// start makes a ReplicaSet and brings it to Ready.
func (f *fixture) start(ctx context.Context, change func(*hwv1alpha1.ReplicaSet)) *hwv1alpha1.ReplicaSet {
	GinkgoHelper()
	rs := f.set(change)
	Expect(api.Create(ctx, rs)).To(Succeed())
	f.eventuallyPods(ctx, specs.Nodes(rs))
	f.ready(ctx)
	f.register(ctx, rs)
	f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, hwv1alpha1.ReasonAllServing)
	f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonSettled)
	return f.getSet(ctx)
}

// register lets the quorum form and every data node register with the directory that its claim says.
func (f *fixture) register(ctx context.Context, rs *hwv1alpha1.ReplicaSet) {
	GinkgoHelper()
	directories := map[ident.NodeID]ident.UUID{}
	var voters []cluster.ReplicaState
	for _, node := range specs.Nodes(rs) {
		directory, err := ident.ParseUUID(f.claim(ctx, node.ID).Annotations[specs.AnnotationDirectoryID])
		Expect(err).NotTo(HaveOccurred())
		if node.Role.HoldsData() {
			directories[ident.NodeID(node.ID)] = directory
		}
		if node.Role.Votes() {
			voters = append(voters, cluster.ReplicaState{Voter: cluster.Voter{ID: ident.NodeID(node.ID), DirectoryID: directory}, LogEndOffset: 5})
		}
	}
	f.cluster.SetVoters(voters...)
	f.cluster.Follow(voters[0].ID, 1)
	f.cluster.Register(directories)
}

func (f *fixture) getSet(ctx context.Context) *hwv1alpha1.ReplicaSet {
	GinkgoHelper()
	var rs hwv1alpha1.ReplicaSet
	Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "logs"}, &rs)).To(Succeed())
	return &rs
}

// change edits an object as a person does, whom the operator may get in the way of.
func change[T client.Object](ctx context.Context, object T, edit func(T)) {
	GinkgoHelper()
	Eventually(func() error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		edit(object)
		return api.Update(ctx, object)
	}).Should(Succeed())
}

func (f *fixture) pods(ctx context.Context) map[string]corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(api.List(ctx, &list, client.InNamespace(f.namespace), client.MatchingLabels{specs.LabelReplicaSet: "logs"})).To(Succeed())
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod
	}
	return pods
}

func (f *fixture) eventuallyPods(ctx context.Context, nodes []specs.Node) {
	GinkgoHelper()
	var names []string
	for _, node := range nodes {
		names = append(names, fmt.Sprintf("logs-%d", node.ID))
	}
	Eventually(func() []string {
		var found []string
		for name, pod := range f.pods(ctx) {
			if pod.DeletionTimestamp.IsZero() {
				found = append(found, name)
			}
		}
		return found
	}).Should(ConsistOf(names))
}

// ready plays the kubelet: every pod runs and is ready.
func (f *fixture) ready(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range f.pods(ctx) {
		f.podStatus(ctx, pod, corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		})
	}
}

func (f *fixture) podStatus(ctx context.Context, pod corev1.Pod, status corev1.PodStatus) {
	GinkgoHelper()
	Eventually(func() error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(&pod), &pod); err != nil {
			return err
		}
		pod.Status = status
		return api.Status().Update(ctx, &pod)
	}).Should(Succeed())
}

// volumeLost has a pod's node end, again and again, with the words for an empty volume.
func (f *fixture) volumeLost(ctx context.Context, name string) {
	GinkgoHelper()
	f.podStatus(ctx, f.pods(ctx)[name], corev1.PodStatus{
		Phase: corev1.PodRunning,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name:  specs.ContainerName,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: specs.ExitBadVolume, Message: "VolumeLost: the volume is empty\n",
			}},
		}},
	})
}

// removePod deletes a pod as if it was never scheduled: there is no kubelet to let it go.
func (f *fixture) removePod(ctx context.Context, name string) {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace}}
	Expect(api.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
}

func (f *fixture) claim(ctx context.Context, id int32) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	var claim corev1.PersistentVolumeClaim
	Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: fmt.Sprintf("data-logs-%d", id)}, &claim)).To(Succeed())
	return &claim
}

func (f *fixture) eventuallySet(ctx context.Context, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	GinkgoHelper()
	var found metav1.Condition
	Eventually(func(g Gomega) {
		rs := f.getSet(ctx)
		c := meta.FindStatusCondition(rs.Status.Conditions, condition)
		g.Expect(c).NotTo(BeNil(), condition)
		g.Expect([]string{string(c.Status), c.Reason}).To(Equal([]string{string(status), reason}), "%s: %s", condition, c.Message)
		g.Expect(c.ObservedGeneration).To(Equal(rs.Generation))
		found = *c
	}).Should(Succeed())
	return found
}

func (f *fixture) partition(name string, change func(*hwv1alpha1.Partition)) *hwv1alpha1.Partition {
	p := &hwv1alpha1.Partition{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace},
		Spec: hwv1alpha1.PartitionSpec{
			ReplicaSetRef:     hwv1alpha1.ReplicaSetReference{Name: "logs"},
			ReplicationFactor: ptr(int32(3)),
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func (f *fixture) getPartition(ctx context.Context, name string) *hwv1alpha1.Partition {
	GinkgoHelper()
	var p hwv1alpha1.Partition
	Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, &p)).To(Succeed())
	return &p
}

func (f *fixture) eventuallyPartition(ctx context.Context, name, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	GinkgoHelper()
	var found metav1.Condition
	Eventually(func(g Gomega) {
		p := f.getPartition(ctx, name)
		c := meta.FindStatusCondition(p.Status.Conditions, condition)
		g.Expect(c).NotTo(BeNil(), condition)
		g.Expect([]string{string(c.Status), c.Reason}).To(Equal([]string{string(status), reason}), "%s: %s", condition, c.Message)
		g.Expect(c.ObservedGeneration).To(Equal(p.Generation))
		found = *c
	}).Should(Succeed())
	return found
}

// events are the notes of the events with a reason about an object.
func (f *fixture) events(ctx context.Context, kind, name, reason string) []string {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(api.List(ctx, &list, client.InNamespace(f.namespace))).To(Succeed())
	var notes []string
	for _, event := range list.Items {
		if event.Regarding.Kind == kind && event.Regarding.Name == name && event.Reason == reason &&
			strings.HasPrefix(event.Regarding.APIVersion, "replication.highwater.dev/") {
			notes = append(notes, event.Note)
		}
	}
	return notes
}
