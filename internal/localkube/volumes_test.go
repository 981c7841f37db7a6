package localkube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// argument returns what became of the path in the app's --file argument.
func (e *env) argument(pod string) string {
	e.Helper()
	var args string
	e.eventually("the app to serve", func() (err error) {
		args, err = e.ask(pod, "/args")
		return err
	})
	return args[len("serve --file="):]
}

func TestProjectedFilesFollowTheirObjects(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Data: map[string]string{"a": "one", "old": "x"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, Data: map[string][]byte{"key": []byte("s1")}}
	pod := e.pod("a")
	pod.Annotations = map[string]string{"permit": "granted"}
	pod.Spec.Containers[0].Args = []string{"serve", "--file=/etc/conf"}
	withVolume(pod, "/etc/conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}})
	mode := int32(0o400)
	withVolume(pod, "/etc/all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"},
			Items: []corev1.KeyToPath{{Key: "key", Path: "deep/key", Mode: &mode}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "permit",
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['permit']"}}}}},
	}}})
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ALL", Value: "/etc/all/deep:/etc/all/permit:/etc/alley"}}
	e.create(pod)
	e.eventually("the pod to wait for its ConfigMap", func() error {
		pod, err := e.get("a")
		if err == nil && (len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Waiting == nil ||
			pod.Status.ContainerStatuses[0].State.Waiting.Reason != "ContainerCreating" || pod.Status.ContainerStatuses[0].State.Waiting.Message == "") {
			err = fmt.Errorf("%+v", pod.Status)
		}
		return err
	})
	e.create(cm)
	e.create(secret)
	e.ready("a")
	conf := e.argument("a")
	all := e.call("a", "/env", "name", "ALL")
	dir, _, _ := strings.Cut(all, "/deep:")
	if want := dir + "/deep:" + dir + "/permit:/etc/alley"; all != want {
		t.Fatalf("ALL is %q, want %q", all, want)
	}
	e.answers("one", "a", "/read", "path", conf+"/a")
	e.answers("s1", "a", "/read", "path", dir+"/deep/key")
	e.answers("granted", "a", "/read", "path", dir+"/permit")
	if info, err := os.Stat(dir + "/deep/key"); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("mode of the secret's file: %v, %v", info.Mode(), err)
	}
	before, err := os.Readlink(conf + "/..data")
	e.must(err)

	cm.Data = map[string]string{"a": "two", "b": "new"}
	e.must(e.k.Update(t.Context(), cm))
	secret.Data["key"] = []byte("s2")
	e.must(e.k.Update(t.Context(), secret))
	e.must(e.k.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"permit":null}}}`))))
	e.answers("two", "a", "/read", "path", conf+"/a")
	e.answers("new", "a", "/read", "path", conf+"/b")
	e.answers("s2", "a", "/read", "path", dir+"/deep/key")
	e.answers("", "a", "/read", "path", dir+"/permit")
	e.eventually("the key that is no more to go", func() error {
		if _, err := os.Lstat(conf + "/old"); !os.IsNotExist(err) {
			return fmt.Errorf("it is there (error %v)", err) //nolint:errorlint // nil when it is there
		}
		return nil
	})
	if after, err := os.Readlink(conf + "/..data"); err != nil || after == before {
		t.Errorf("..data still names %s, %v: the update was not a swap", after, err)
	}
}

func TestClaimKeepsItsDataAndGoesWhenUnused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	claim := e.claim("data")
	e.create(claim)
	mount := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	makePod := func() *corev1.Pod {
		pod := withVolume(e.pod("a"), "/var/lib/x", mount)
		pod.Spec.Containers[0].Args = []string{"serve", "--file=/var/lib/x/file"}
		e.create(pod)
		return e.ready("a")
	}
	pod := makePod()
	e.call("a", "/write", "path", e.argument("a"), "text", "kept")
	e.must(e.k.Delete(t.Context(), pod))
	e.isGone(pod)
	pod = makePod()
	file := e.argument("a")
	e.answers("kept", "a", "/read", "path", file)

	e.must(e.k.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" || *claim.Spec.StorageClassName != "standard" {
		t.Errorf("claim %+v %+v", claim.Spec, claim.Status)
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	e.must(e.k.Delete(t.Context(), claim))
	e.must(e.k.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	if claim.DeletionTimestamp == nil {
		t.Error("the claim is not terminating")
	}
	e.must(e.k.Delete(t.Context(), pod))
	e.isGone(claim) // only now: a pod used it
	e.isGone(volume)
	e.eventually("the directory to go", func() error {
		if _, err := os.Stat(filepath.Dir(file)); !os.IsNotExist(err) {
			return fmt.Errorf("it is there (error %v)", err) //nolint:errorlint // nil when it is there
		}
		return nil
	})
}

func TestRetainedVolumeIsReleasedAndCanBeClaimedAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	claim := e.claim("data")
	e.create(claim)
	bound := func(claim *corev1.PersistentVolumeClaim) {
		t.Helper()
		e.eventually("the claim to be bound", func() error {
			err := e.k.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
			if err == nil && claim.Status.Phase != corev1.ClaimBound {
				err = fmt.Errorf("it is %s", claim.Status.Phase)
			}
			return err
		})
	}
	bound(claim)
	volume := &corev1.PersistentVolume{}
	key := client.ObjectKey{Name: claim.Spec.VolumeName}
	change := func(f func()) {
		t.Helper()
		e.eventually("the volume to be changed", func() error {
			if err := e.k.Get(t.Context(), key, volume); err != nil {
				return err
			}
			f()
			return e.k.Update(t.Context(), volume)
		})
	}
	change(func() { volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
	file := filepath.Join(volume.Spec.HostPath.Path, "file")
	e.must(os.WriteFile(file, []byte("kept"), 0o644))
	e.must(e.k.Delete(t.Context(), claim))
	e.isGone(claim)
	e.eventually("the volume to be released", func() error {
		err := e.k.Get(t.Context(), key, volume)
		if err == nil && volume.Status.Phase != corev1.VolumeReleased {
			err = fmt.Errorf("it is %s", volume.Status.Phase)
		}
		return err
	})
	change(func() { volume.Spec.ClaimRef.UID = "" })
	again := e.claim("data")
	again.Spec.VolumeName = volume.Name
	e.create(again)
	bound(again)
	if data, err := os.ReadFile(file); err != nil || string(data) != "kept" {
		t.Errorf("the volume's file: %q, %v", data, err)
	}
	e.must(client.IgnoreNotFound(e.k.Delete(t.Context(), again)))
	e.isGone(again)
	e.must(e.k.Delete(t.Context(), volume))
	e.isGone(volume)
	if apierrors.IsNotFound(e.k.Get(t.Context(), key, volume)) {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("deleting a volume that is to be retained took its data: %v", err)
		}
	}
}
