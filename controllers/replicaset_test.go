package controllers_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

const kindSet = "ReplicaSet"

func minAvailable(ctx SpecContext, f *fixture) func() int {
	return func() int {
		var budget policyv1.PodDisruptionBudget
		Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "logs-nodes"}, &budget)).To(Succeed())
		return budget.Spec.MinAvailable.IntValue()
	}
}

var _ = Describe("A ReplicaSet", func() {
	var f *fixture
	BeforeEach(func(ctx SpecContext) { f = newFixture(ctx) })

	It("gets claims with an identity, pods with a permit, and Services, all at once", func(ctx SpecContext) {
		rs := f.set(nil)
		Expect(api.Create(ctx, rs)).To(Succeed())
		f.eventuallyPods(ctx, specs.Nodes(rs))

		var config corev1.ConfigMap
		Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "logs-nodes"}, &config)).To(Succeed())
		directories := map[string]bool{}
		for name, pod := range f.pods(ctx) {
			claim := f.claim(ctx, idOf(pod))
			Expect(claim.OwnerReferences).To(BeEmpty(), "under Retain a claim has no owner")
			Expect(claim.Annotations).To(HaveKeyWithValue(specs.AnnotationClusterID, specs.ClusterID(rs.UID).String()))
			directory := claim.Annotations[specs.AnnotationDirectoryID]
			Expect(directories).NotTo(HaveKey(directory))
			directories[directory] = true
			Expect(pod.Annotations).To(HaveKeyWithValue(specs.AnnotationFormatPermit, directory), name)
			Expect(pod.Spec.Containers[0].Image).To(Equal(operatorImage))
			if pod.Labels[specs.LabelRole] == "voter" {
				Expect(config.Data["node.yaml"]).To(ContainSubstring(directory))
			}
		}
		Expect(directories).To(HaveLen(6))
		for _, name := range []string{"logs-nodes", "logs-bootstrap"} {
			Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, &corev1.Service{})).To(Succeed())
		}
		Expect(minAvailable(ctx, f)()).To(Equal(6), "nothing may be evicted before the set is healthy")
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonStarting)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonCreating)

		targets := f.cluster.Targets()
		Expect(targets).To(HaveLen(1))
		Expect(targets[0].Voters).To(HaveKeyWithValue(BeEquivalentTo(1001), "logs-1001.logs-nodes."+f.namespace+".svc:9093"))
		Expect(targets[0].Facts).To(HaveKeyWithValue(BeEquivalentTo(2), "logs-2.logs-nodes."+f.namespace+".svc:9095"))
	})

	It("lets no probe restart a node that is only not ready, and has one started again that ends", func(ctx SpecContext) {
		rs := f.set(nil)
		Expect(api.Create(ctx, rs)).To(Succeed())
		f.eventuallyPods(ctx, specs.Nodes(rs))
		for name, pod := range f.pods(ctx) {
			Expect(pod.Spec.RestartPolicy).To(Equal(corev1.RestartPolicyAlways), name)
			container := pod.Spec.Containers[0]
			// /livez is about the process alone; a node without its data directory fails /readyz.
			Expect(container.LivenessProbe.HTTPGet.Path).To(Equal("/livez"), name)
			Expect(container.StartupProbe.HTTPGet.Path).To(Equal("/livez"), name)
			Expect(container.ReadinessProbe.HTTPGet.Path).To(Equal("/readyz"), name)
		}
	})

	It("becomes Ready and takes the permits back once the cluster has seen every directory", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		Expect(rs.Status.Replicas).To(BeEquivalentTo(3))
		Expect(rs.Status.ClusterID).To(Equal(specs.ClusterID(rs.UID).String()))
		Expect(rs.Status.Listeners).To(ConsistOf(hwv1alpha1.ListenerStatus{Name: "internal", Bootstrap: "logs-bootstrap." + f.namespace + ".svc:9092"}))
		Expect(rs.Status.Quorum.LeaderID).To(BeEquivalentTo(1000))
		Expect(rs.Status.Quorum.Voters).To(Equal([]int32{1000, 1001, 1002}))
		Expect(rs.Status.AsOf).NotTo(BeNil())
		Eventually(func(g Gomega) {
			for name, pod := range f.pods(ctx) {
				g.Expect(pod.Annotations).NotTo(HaveKey(specs.AnnotationFormatPermit), name)
				g.Expect(f.claim(ctx, idOf(pod)).Annotations).To(HaveKeyWithValue(specs.AnnotationFormatted, "true"), name)
			}
		}).Should(Succeed())
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetPartitionsInSync, metav1.ConditionTrue, hwv1alpha1.ReasonAllInSync)
		Eventually(minAvailable(ctx, f)).Should(Equal(5), "a healthy set can spare one pod")
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventQuorumLeaderChanged)).To(ConsistOf("voter 1000 leads the metadata quorum in epoch 1"))
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventNodeUnfenced)).To(HaveLen(3))
	})

	It("keeps the permit of a voter that is in the voter set without a log of its own", func(ctx SpecContext) {
		rs := f.set(nil)
		Expect(api.Create(ctx, rs)).To(Succeed())
		f.eventuallyPods(ctx, specs.Nodes(rs))
		voters := func(logEndOffset int64) []cluster.ReplicaState {
			var all []cluster.ReplicaState
			for _, id := range []int32{1000, 1001, 1002} {
				all = append(all, cluster.ReplicaState{Voter: cluster.Voter{ID: ident.NodeID(id), DirectoryID: directoryOf(f.claim(ctx, id))}, LogEndOffset: logEndOffset})
			}
			return all
		}
		permits := func() map[string]string { return f.pods(ctx)["logs-1002"].Annotations }
		f.cluster.SetVoters(voters(0)...)
		f.cluster.Follow(1000, 1)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, metav1.ConditionTrue, hwv1alpha1.ReasonVotersUnavailable)
		Consistently(permits).WithTimeout(1500 * time.Millisecond).Should(HaveKey(specs.AnnotationFormatPermit))
		f.cluster.SetVoters(voters(1)...)
		Eventually(permits).ShouldNot(HaveKey(specs.AnnotationFormatPermit))
	})

	It("makes again what is deleted, and without a permit", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		for name := range f.pods(ctx) {
			f.removePod(ctx, name)
		}
		f.eventuallyPods(ctx, specs.Nodes(rs))
		for name, pod := range f.pods(ctx) {
			Expect(pod.Annotations).NotTo(HaveKey(specs.AnnotationFormatPermit), name)
		}
		Eventually(minAvailable(ctx, f)).Should(Equal(6), "a set that waits for its pods can spare none")
		key := metav1.ObjectMeta{Namespace: f.namespace, Name: "logs-nodes"}
		for _, object := range []client.Object{
			&corev1.Service{ObjectMeta: key}, &corev1.ConfigMap{ObjectMeta: key}, &policyv1.PodDisruptionBudget{ObjectMeta: key},
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "logs-bootstrap"}},
		} {
			Expect(api.Delete(ctx, object)).To(Succeed())
			Eventually(func() error { return api.Get(ctx, client.ObjectKeyFromObject(object), object) }).Should(Succeed())
		}
	})

	It("puts right what somebody changed", func(ctx SpecContext) {
		f.start(ctx, nil)
		var service corev1.Service
		key := client.ObjectKey{Namespace: f.namespace, Name: "logs-nodes"}
		Expect(api.Get(ctx, key, &service)).To(Succeed())
		change(ctx, &service, func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"app": "other"}
			s.Spec.PublishNotReadyAddresses = false
			s.Labels = map[string]string{"mine": "stays"}
		})
		Eventually(func(g Gomega) {
			g.Expect(api.Get(ctx, key, &service)).To(Succeed())
			g.Expect(service.Spec.Selector).To(HaveKeyWithValue(specs.LabelReplicaSet, "logs"))
			g.Expect(service.Spec.PublishNotReadyAddresses).To(BeTrue())
			g.Expect(service.Labels).To(HaveKeyWithValue(specs.LabelReplicaSet, "logs"))
			g.Expect(service.Labels).To(HaveKeyWithValue("mine", "stays"))
		}).Should(Succeed())
	})

	It("replaces a pod that has ended, and tells so", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		ended := f.pods(ctx)["logs-1"]
		f.podStatus(ctx, ended, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"})
		Eventually(func() bool { return f.pods(ctx)["logs-1"].UID != ended.UID }).Should(BeTrue())
		f.eventuallyPods(ctx, specs.Nodes(rs))
		Eventually(func() []string { return f.events(ctx, kindSet, "logs", hwv1alpha1.EventPodReplaced) }).
			Should(ConsistOf("pod logs-1 had ended (Failed Evicted) and is made anew"))
	})

	It("does not replace the volume of a node that the cluster knows", func(ctx SpecContext) {
		f.start(ctx, nil)
		lost := f.claim(ctx, 1)
		change(ctx, lost, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
		Expect(api.Delete(ctx, lost)).To(Succeed())
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonVolumeLost)
		Expect(condition.Message).To(ContainSubstring("data-logs-1"))
		f.removePod(ctx, "logs-1")
		Consistently(func() bool {
			err := api.Get(ctx, client.ObjectKeyFromObject(lost), &corev1.PersistentVolumeClaim{})
			_, pod := f.pods(ctx)["logs-1"]
			return apierrors.IsNotFound(err) && !pod
		}).Should(BeTrue())
	})

	It("waits for a claim that is being deleted", func(ctx SpecContext) {
		rs := f.set(nil)
		Expect(api.Create(ctx, rs)).To(Succeed())
		f.eventuallyPods(ctx, specs.Nodes(rs))
		held := f.claim(ctx, 2)
		change(ctx, held, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/hold"} })
		Expect(api.Delete(ctx, held)).To(Succeed())
		Eventually(func() bool { return f.claim(ctx, 2).DeletionTimestamp != nil }).Should(BeTrue())
		f.removePod(ctx, "logs-2")
		Consistently(func() map[string]corev1.Pod { return f.pods(ctx) }).ShouldNot(HaveKey("logs-2"))
		change(ctx, held, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
		f.eventuallyPods(ctx, specs.Nodes(rs))
		Expect(f.claim(ctx, 2).UID).NotTo(Equal(held.UID))
	})

	It("takes no claim and no pod that is not its own", func(ctx SpecContext) {
		rs := f.set(nil)
		foreign := specs.Claim(f.set(func(rs *hwv1alpha1.ReplicaSet) { rs.UID = "another" }),
			specs.Node{ID: 0, Role: hwv1alpha1.RoleData}, specs.ClusterID("another"), specs.ClusterID("directory"), 0)
		Expect(api.Create(ctx, foreign)).To(Succeed())
		Expect(api.Create(ctx, rs)).To(Succeed())
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonVolumeIdentityMismatch)
		Expect(condition.Message).To(ContainSubstring("data-logs-0"))
		f.eventuallyPods(ctx, specs.Nodes(rs)[1:])
		Consistently(func() map[string]corev1.Pod { return f.pods(ctx) }).ShouldNot(HaveKey("logs-0"))
	})

	It("leaves a ReplicaSet of apps/v1 with its name, and the pods of that, alone", func(ctx SpecContext) {
		other := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: f.namespace},
			Spec: appsv1.ReplicaSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			},
		}
		Expect(api.Create(ctx, other)).To(Succeed())
		rs := f.start(ctx, nil)
		pod, err := specs.Pod(rs, specs.Node{ID: 7, Role: hwv1alpha1.RoleData}, specs.Identity{NodeID: 7}, operatorImage)
		Expect(err).NotTo(HaveOccurred())
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		Expect(api.Create(ctx, pod)).To(Succeed())
		f.podStatus(ctx, *pod, corev1.PodStatus{Phase: corev1.PodFailed})
		f.cluster.Fence(0, true)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonNodesFenced)
		Expect(api.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Expect(pod.DeletionTimestamp).To(BeNil())
		Expect(f.getSet(ctx).Status.Replicas).To(BeEquivalentTo(3))
	})

	It("grows by new nodes and touches no other pod", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		before := f.pods(ctx)
		change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Replicas = 5 })
		f.eventuallyPods(ctx, specs.Nodes(rs))
		after := f.pods(ctx)
		for name, pod := range before {
			Expect(after[name].UID).To(Equal(pod.UID), name)
			Expect(after[name].Annotations[specs.AnnotationRevision]).To(Equal(pod.Annotations[specs.AnnotationRevision]), name)
		}
		Expect(after["logs-4"].Annotations).To(HaveKey(specs.AnnotationFormatPermit))
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonNodesUnregistered)
	})

	It("does not shrink, and says what to do", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Replicas = 2 })
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonScaleDownBlocked)
		Expect(condition.Message).To(And(ContainSubstring("nodes 2"), ContainSubstring("set replicas to 3")))
		f.removePod(ctx, "logs-2")
		f.eventuallyPods(ctx, specs.Nodes(f.set(nil)))
		Expect(f.getSet(ctx).Status.Nodes).To(HaveLen(6))
	})

	It("tells of pods that run an older spec", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Image = "example.com/new:1" })
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonPodsOutdated)
		Expect(condition.Message).To(ContainSubstring("nodes 0, 1, 2, 1000, 1001, 1002"))
		f.removePod(ctx, "logs-0")
		Eventually(func() string {
			if pod, found := f.pods(ctx)["logs-0"]; found {
				return pod.Spec.Containers[0].Image
			}
			return ""
		}).Should(Equal("example.com/new:1"))
	})

	It("hands its defaults to the nodes, which take them when they next start", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		shared := func() string {
			var config corev1.ConfigMap
			Expect(api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "logs-nodes"}, &config)).To(Succeed())
			return config.Data["node.yaml"]
		}
		Expect(shared()).NotTo(ContainSubstring("flush"), "nodes of an older image refuse what they do not know")
		change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) {
			rs.Spec.Defaults = &hwv1alpha1.Defaults{Flush: ptr(hwv1alpha1.FlushAlways), MinInSyncReplicas: ptr(int32(2))}
		})
		Eventually(shared).Should(And(ContainSubstring("flush: Always"), ContainSubstring("minInSyncReplicas: 2")))
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonSettled)
	})

	It("tells of fenced nodes", func(ctx SpecContext) {
		f.start(ctx, nil)
		f.cluster.Fence(1, true)
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonNodesFenced)
		Expect(condition.Message).To(ContainSubstring("logs-1 (Fenced)"))
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonReplicasUnavailable)
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventNodeFenced)).To(HaveLen(1))
		f.cluster.Fence(1, false)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, hwv1alpha1.ReasonAllServing)
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventNodeUnfenced)).To(HaveLen(4))
	})

	It("tells a quorum without leader from one that can't be reached", func(ctx SpecContext) {
		f.start(ctx, nil)
		f.cluster.Lose(cluster.NoLeader, time.Now())
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonQuorumUnavailable)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReplicasAvailable, metav1.ConditionTrue, hwv1alpha1.ReasonAllUnfenced)
		Eventually(minAvailable(ctx, f)).Should(Equal(6))
		Expect(f.events(ctx, kindSet, "logs", hwv1alpha1.EventQuorumLeaderLost)).To(HaveLen(1))

		f.cluster.Lose(cluster.Disconnected, time.Now(), "one:9093", "two:9093")
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, metav1.ConditionUnknown, hwv1alpha1.ReasonObserverDisconnected)
		Expect(condition.Message).To(ContainSubstring("one:9093, two:9093"))
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionUnknown, hwv1alpha1.ReasonMetadataUnavailable)

		f.cluster.Follow(1001, 3)
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, hwv1alpha1.ReasonAllServing)
		Expect(f.getSet(ctx).Status.Quorum.LeaderID).To(BeEquivalentTo(1001))
	})

	It("tells of a node that stopped because of its volume", func(ctx SpecContext) {
		f.start(ctx, nil)
		f.volumeLost(ctx, "logs-0")
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionFalse, hwv1alpha1.ReasonVolumeLost)
		Expect(condition.Message).To(Equal("pod logs-0: VolumeLost: the volume is empty"))
	})

	It("makes nothing in a namespace that is being deleted", func(ctx SpecContext) {
		f.start(ctx, nil)
		Expect(api.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}})).To(Succeed())
		f.removePod(ctx, "logs-0")
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonNamespaceTerminating)
		Expect(f.pods(ctx)).NotTo(HaveKey("logs-0"))
	})

	It("gives claims an owner only while its retention is Delete", func(ctx SpecContext) {
		rs := f.start(ctx, nil)
		change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Storage.Retention = ptr(hwv1alpha1.VolumesDelete) })
		Eventually(func() bool { return specs.IsOwner(rs, f.claim(ctx, 1000)) }).Should(BeTrue())
		change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Storage.Retention = nil })
		Eventually(func() []metav1.OwnerReference { return f.claim(ctx, 1000).OwnerReferences }).Should(BeEmpty())
	})

	It("works with voters that are data nodes", func(ctx SpecContext) {
		rs := f.start(ctx, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Quorum.Mode = hwv1alpha1.QuorumCombined })
		Expect(rs.Status.Nodes).To(HaveLen(3))
		Expect(rs.Status.Nodes[0].Role).To(Equal(hwv1alpha1.RoleCombined))
		Expect(rs.Status.Quorum.Voters).To(Equal([]int32{0, 1, 2}))
	})

	It("is silent when nothing changes", func(ctx SpecContext) {
		f.start(ctx, nil)
		Eventually(minAvailable(ctx, f)).Should(Equal(5))
		before := f.versions(ctx)
		for range 20 {
			f.cluster.Follow(1000, 1)
		}
		Consistently(func() map[string]string { return f.versions(ctx) }).Should(Equal(before))
	})
})
