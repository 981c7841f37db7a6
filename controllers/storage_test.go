package controllers_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// storageClass makes a class of the fixture's own.
func (f *fixture) storageClass(ctx context.Context, expandable bool) *storagev1.StorageClass {
	GinkgoHelper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "class-" + f.namespace}, Provisioner: "example.com/none", AllowVolumeExpansion: &expandable,
	}
	Expect(api.Create(ctx, class)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(api.Delete(ctx, class))).To(Succeed()) })
	return class
}

// provision plays the storage: the claim of a node is bound to a volume as large as given, and says what it waits for.
func (f *fixture) provision(ctx context.Context, id int32, size string, conditions ...corev1.PersistentVolumeClaimCondition) {
	GinkgoHelper()
	Eventually(func() error {
		claim := f.claim(ctx, id)
		claim.Status.Phase = corev1.ClaimBound
		claim.Status.AccessModes = claim.Spec.AccessModes
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		claim.Status.Conditions = conditions
		return api.Status().Update(ctx, claim)
	}).Should(Succeed())
}

func (f *fixture) request(ctx context.Context, id int32) func() string {
	return func() string {
		size := f.claim(ctx, id).Spec.Resources.Requests[corev1.ResourceStorage]
		return size.String()
	}
}

func sized(size string) func(*hwv1alpha1.ReplicaSet) {
	return func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Storage.Size = resource.MustParse(size) }
}

var _ = Describe("The volumes of a ReplicaSet", func() {
	var f *fixture
	BeforeEach(func(ctx SpecContext) { f = newFixture(ctx) })

	start := func(ctx SpecContext, expandable bool) *hwv1alpha1.ReplicaSet {
		GinkgoHelper()
		class := f.storageClass(ctx, expandable)
		rs := f.start(ctx, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Storage.StorageClassName = &class.Name })
		for _, node := range rs.Status.Nodes {
			f.provision(ctx, node.ID, "1Gi")
		}
		return rs
	}

	It("grow with the spec, and nothing restarts for it", func(ctx SpecContext) {
		rs := start(ctx, true)
		before := f.pods(ctx)
		change(ctx, rs, sized("2Gi"))
		for id := range rs.Spec.Replicas {
			Eventually(f.request(ctx, id)).Should(Equal("2Gi"))
		}
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVolumesGrowing)
		Expect(condition.Message).To(Equal("volumes that grow: data-logs-0 to 2Gi, data-logs-1 to 2Gi, data-logs-2 to 2Gi"))
		f.provision(ctx, 0, "2Gi")
		f.provision(ctx, 1, "1Gi", corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue})
		f.provision(ctx, 2, "2Gi")
		Eventually(func() string {
			return f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVolumesGrowing).Message
		}).Should(Equal("volumes that grow: data-logs-1 to 2Gi (FileSystemResizePending)"))
		f.provision(ctx, 1, "2Gi")
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonSettled)
		Expect(f.request(ctx, 1000)()).To(Equal("1Gi"), "voters have a size of their own")
		for name, pod := range f.pods(ctx) {
			Expect(pod.UID).To(Equal(before[name].UID), name)
		}
	})

	It("of voters grow apart from those of data nodes", func(ctx SpecContext) {
		rs := start(ctx, true)
		change(ctx, rs, func(rs *hwv1alpha1.ReplicaSet) {
			rs.Spec.Quorum.Storage = &hwv1alpha1.QuorumStorageSpec{Size: resource.MustParse("3Gi")}
		})
		Eventually(f.request(ctx, 1002)).Should(Equal("3Gi"))
		Expect(f.request(ctx, 0)()).To(Equal("1Gi"))
	})

	It("do not shrink where somebody made one larger, and are not written for it", func(ctx SpecContext) {
		rs := start(ctx, true)
		change(ctx, f.claim(ctx, 1), func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("5Gi")
		})
		f.provision(ctx, 1, "5Gi")
		grown := f.claim(ctx, 1).ResourceVersion
		change(ctx, rs, sized("3Gi"))
		Eventually(f.request(ctx, 0)).Should(Equal("3Gi"))
		Eventually(f.request(ctx, 2)).Should(Equal("3Gi"))
		Consistently(func() string { return f.claim(ctx, 1).ResourceVersion }).Should(Equal(grown))
	})

	It("stay as they are where the storage class lets none grow, and the set says so and goes on", func(ctx SpecContext) {
		rs := start(ctx, false)
		change(ctx, rs, sized("2Gi"))
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVolumeExpansionRefused)
		Expect(condition.Message).To(And(
			ContainSubstring("data-logs-0, data-logs-1, data-logs-2"), ContainSubstring("storageclass that provisions the pvc must support resize"),
			ContainSubstring("Set allowVolumeExpansion")))
		f.eventuallySet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, hwv1alpha1.ReasonAllServing)
		before := f.versions(ctx)
		for range 20 {
			f.cluster.Follow(1000, 1)
		}
		Consistently(func() map[string]string { return f.versions(ctx) }).Should(Equal(before))
		f.removePod(ctx, "logs-1")
		Eventually(func() map[string]corev1.Pod { return f.pods(ctx) }).Should(HaveKey("logs-1"), "a refusal holds nothing else up")
	})

	It("wait with growing until they are bound", func(ctx SpecContext) {
		class := f.storageClass(ctx, true)
		rs := f.start(ctx, func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Storage.StorageClassName = &class.Name })
		change(ctx, rs, sized("2Gi"))
		condition := f.eventuallySet(ctx, hwv1alpha1.ReplicaSetProgressing, metav1.ConditionTrue, hwv1alpha1.ReasonVolumesGrowing)
		Expect(condition.Message).To(ContainSubstring("data-logs-0 to 2Gi (not bound to a volume yet)"))
		f.provision(ctx, 0, "1Gi")
		Eventually(f.request(ctx, 0)).Should(Equal("2Gi"))
	})
})
