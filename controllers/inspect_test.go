package controllers_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

func idOf(pod corev1.Pod) int32 {
	GinkgoHelper()
	id, err := strconv.ParseInt(pod.Labels[specs.LabelNodeID], 10, 32)
	Expect(err).NotTo(HaveOccurred())
	return int32(id)
}

func directoryOf(claim *corev1.PersistentVolumeClaim) ident.UUID {
	GinkgoHelper()
	directory, err := ident.ParseUUID(claim.Annotations[specs.AnnotationDirectoryID])
	Expect(err).NotTo(HaveOccurred())
	return directory
}

// versions are the resource versions of all objects in the namespace: no write, no difference.
func (f *fixture) versions(ctx context.Context) map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &policyv1.PodDisruptionBudgetList{},
		&hwv1alpha1.ReplicaSetList{}, &hwv1alpha1.PartitionList{}, &eventsv1.EventList{},
	} {
		Expect(api.List(ctx, list, client.InNamespace(f.namespace))).To(Succeed())
		Expect(meta.EachListItem(list, func(object runtime.Object) error {
			accessor, err := meta.Accessor(object)
			if err == nil {
				all[fmt.Sprintf("%T %s", object, accessor.GetName())] = accessor.GetResourceVersion()
			}
			return err
		})).To(Succeed())
	}
	return all
}

// silent says that something makes the operator write nothing, once it has written all of what was before.
func (f *fixture) silent(ctx context.Context, something func()) {
	GinkgoHelper()
	var before map[string]string
	same := 0
	Eventually(func() int {
		now := f.versions(ctx)
		if same++; !maps.Equal(before, now) {
			before, same = now, 0
		}
		return same
	}).Should(BeNumerically(">=", 15))
	something()
	Consistently(func() map[string]string { return f.versions(ctx) }).Should(Equal(before))
}

func nodes(ids ...ident.NodeID) []ident.NodeID { return ids }

func noDirectories(n int) []ident.UUID { return make([]ident.UUID, n) }
