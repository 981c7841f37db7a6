package controllermanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// StorageClass is the name of the class that a local cluster has. It is the default one.
	StorageClass = "standard"
	provisioner  = "highwater.dev/local-directory"
	// Finalizers that the API server's StorageObjectInUseProtection admission puts on.
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
	provisionedBy    = "pv.kubernetes.io/provisioned-by"
	bindCompleted    = "pv.kubernetes.io/bind-completed"
)

// StandardClass returns the StorageClass that a local cluster makes at its start.
func StandardClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:          provisioner,
		ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingImmediate),
		AllowVolumeExpansion: ptr.To(true),
	}
}

// claims binds each PersistentVolumeClaim to the volume that it names, else to a volume that is reserved for it, else
// to a fresh directory; grows it; and holds back its end while a pod uses it.
type claims struct {
	client.Client
	uncached client.Reader
	dir      string
}

func (c *claims) setup(m manager.Manager) error {
	ofPod := func(_ context.Context, o client.Object) []reconcile.Request {
		var out []reconcile.Request
		for _, v := range o.(*corev1.Pod).Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: v.PersistentVolumeClaim.ClaimName}})
			}
		}
		return out
	}
	ofVolume := func(_ context.Context, o client.Object) []reconcile.Request {
		if ref := o.(*corev1.PersistentVolume).Spec.ClaimRef; ref != nil {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}}
		}
		return nil
	}
	return ctrl.NewControllerManagedBy(m).Named("claims").For(&corev1.PersistentVolumeClaim{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(ofVolume)).
		Complete(c)
}

func (c *claims) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := c.Get(ctx, req.NamespacedName, &claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp != nil {
		used, err := c.used(ctx, &claim)
		if err != nil || used || !controllerutil.RemoveFinalizer(&claim, claimProtection) {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, ignoreRaces(c.Update(ctx, &claim))
	}
	volume, err := c.volume(ctx, &claim)
	if err != nil || volume == nil {
		return ctrl.Result{}, err
	}
	if claim.Spec.VolumeName == "" {
		claim.Spec.VolumeName = volume.Name
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, bindCompleted, "yes")
		if err := c.Update(ctx, &claim); err != nil {
			return ctrl.Result{}, ignoreRaces(err)
		}
	}
	want := claim.Status.DeepCopy()
	want.Phase, want.AccessModes = corev1.ClaimBound, volume.Spec.AccessModes
	want.Capacity = corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}
	if equality.Semantic.DeepEqual(claim.Status, *want) {
		return ctrl.Result{}, nil
	}
	claim.Status = *want
	return ctrl.Result{}, ignoreRaces(c.Status().Update(ctx, &claim))
}

// used asks the API server and not the cache: a claim must not end under a pod that was made a moment ago.
func (c *claims) used(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	var pods corev1.PodList
	if err := c.uncached.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return false, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
				return true, nil
			}
		}
	}
	return false, nil
}

// volume returns the claim's volume, bound to it; nil when the claim has to wait or is another provisioner's.
func (c *claims) volume(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	var volume *corev1.PersistentVolume
	if name := claim.Spec.VolumeName; name != "" {
		volume = &corev1.PersistentVolume{}
		if err := c.Get(ctx, types.NamespacedName{Name: name}, volume); err != nil {
			return nil, client.IgnoreNotFound(err) // made later: its event comes here if it names the claim
		}
	} else {
		var all corev1.PersistentVolumeList
		if err := c.List(ctx, &all); err != nil {
			return nil, err
		}
		for i := range all.Items {
			ref := all.Items[i].Spec.ClaimRef
			if ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID) {
				volume = &all.Items[i]
				break
			}
		}
	}
	if volume == nil {
		if ptr.Deref(claim.Spec.StorageClassName, "") != StorageClass {
			return nil, nil
		}
		return c.provision(ctx, claim)
	}
	if ref := volume.Spec.ClaimRef; ref != nil && (ref.Namespace != claim.Namespace || ref.Name != claim.Name || ref.UID != "" && ref.UID != claim.UID) {
		return nil, nil // another's
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if ref := volume.Spec.ClaimRef; ref == nil || ref.UID == "" || size.Cmp(volume.Spec.Capacity[corev1.ResourceStorage]) > 0 {
		volume.Spec.ClaimRef = reference(claim)
		if size.Cmp(volume.Spec.Capacity[corev1.ResourceStorage]) > 0 {
			volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
		}
		if err := c.Update(ctx, volume); err != nil {
			return nil, ignoreRaces(err)
		}
	}
	return volume, nil
}

func reference(claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
}

// provision makes a directory and a volume for a claim. Its name is the claim's, so doing it twice is doing it once.
func (c *claims) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	var class storagev1.StorageClass
	if err := c.Get(ctx, types.NamespacedName{Name: StorageClass}, &class); err != nil {
		return nil, fmt.Errorf("the class of claim %s: %w", claim.Name, err)
	}
	name := "pvc-" + string(claim.UID)
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of claim %s: %w", claim.Name, err)
	}
	modes := claim.Spec.AccessModes
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: modes, ClaimRef: reference(claim), StorageClassName: StorageClass,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}
	err := c.Create(ctx, volume)
	if apierrors.IsAlreadyExists(err) {
		err = c.uncached.Get(ctx, types.NamespacedName{Name: name}, volume)
	}
	return volume, err
}

// volumesOf keeps the phase of PersistentVolumes and removes those whose claim has gone, with their directory, when
// their policy is Delete.
type volumesOf struct {
	client.Client
	dir string
}

func (v *volumesOf) setup(m manager.Manager) error {
	ofClaim := func(_ context.Context, o client.Object) []reconcile.Request {
		if name := o.(*corev1.PersistentVolumeClaim).Spec.VolumeName; name != "" {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
		}
		return nil
	}
	return ctrl.NewControllerManagedBy(m).Named("volumes").For(&corev1.PersistentVolume{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(ofClaim)).
		Complete(v)
}

func (v *volumesOf) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var volume corev1.PersistentVolume
	if err := v.Get(ctx, req.NamespacedName, &volume); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	phase, err := v.phase(ctx, &volume)
	if err != nil {
		return ctrl.Result{}, err
	}
	if volume.DeletionTimestamp != nil {
		if phase == corev1.VolumeBound || !controllerutil.RemoveFinalizer(&volume, volumeProtection) {
			return ctrl.Result{}, nil
		}
		if ours(&volume) && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			if err := v.removeDir(&volume); err != nil {
				return ctrl.Result{}, err
			}
		}
		return ctrl.Result{}, ignoreRaces(v.Update(ctx, &volume))
	}
	if volume.Status.Phase != phase {
		volume.Status.Phase = phase
		if err := v.Status().Update(ctx, &volume); err != nil {
			return ctrl.Result{}, ignoreRaces(err)
		}
	}
	if phase == corev1.VolumeReleased && ours(&volume) && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return ctrl.Result{}, ignoreRaces(v.Delete(ctx, &volume, client.Preconditions{UID: &volume.UID}))
	}
	return ctrl.Result{}, nil
}

func ours(v *corev1.PersistentVolume) bool { return v.Annotations[provisionedBy] == provisioner }

func (v *volumesOf) phase(ctx context.Context, volume *corev1.PersistentVolume) (corev1.PersistentVolumePhase, error) {
	ref := volume.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return corev1.VolumeAvailable, nil
	}
	var claim corev1.PersistentVolumeClaim
	err := v.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &claim)
	switch {
	case apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID:
		return corev1.VolumeReleased, nil
	case err != nil:
		return "", err
	}
	return corev1.VolumeBound, nil
}

func (v *volumesOf) removeDir(volume *corev1.PersistentVolume) error {
	dir := volume.Spec.HostPath.Path
	// Never remove what someone wrote into the object by hand.
	if filepath.Dir(dir) != v.dir || !strings.HasPrefix(filepath.Base(dir), "pvc-") {
		return fmt.Errorf("volume %s lies in %s, which is not below %s: not removed", volume.Name, dir, v.dir)
	}
	return os.RemoveAll(dir)
}
