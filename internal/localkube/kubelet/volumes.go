package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// volumes makes a pod's volumes be what its spec and the objects that it names say now, and returns where each
// one lies. It writes only what changed since the last call.
func (w *worker) volumes(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	out := make(map[string]string, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		dir := filepath.Join(w.dir, "volumes", v.Name)
		var err error
		switch {
		case v.EmptyDir != nil:
			err = os.MkdirAll(dir, 0o777)
		case v.PersistentVolumeClaim != nil:
			dir, err = w.claimDir(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		case v.HostPath != nil:
			dir = v.HostPath.Path
		default:
			var p payload
			if p, err = w.payload(ctx, pod, v); err == nil && !w.projected[v.Name].equal(p) {
				if err = writeAtomic(dir, p); err == nil {
					w.projected[v.Name] = p
				}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.Name, err)
		}
		out[v.Name] = dir
	}
	return out, nil
}

// claimDir returns the directory of a bound claim.
func (w *worker) claimDir(ctx context.Context, namespace, name string) (string, error) {
	var claim corev1.PersistentVolumeClaim
	if err := w.k.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &claim); err != nil {
		return "", err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("persistentvolumeclaim %q is not bound", name)
	}
	var pv corev1.PersistentVolume
	if err := w.k.client.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName}, &pv); err != nil {
		return "", err
	}
	var dir string
	switch {
	case pv.Spec.HostPath != nil:
		dir = pv.Spec.HostPath.Path
	case pv.Spec.Local != nil:
		dir = pv.Spec.Local.Path
	default:
		return "", fmt.Errorf("persistentvolume %q is no directory of this machine", pv.Name)
	}
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("persistentvolume %q: %w", pv.Name, err)
	}
	return dir, nil
}

func (w *worker) payload(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (payload, error) {
	out := payload{}
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return out, w.addConfigMap(ctx, out, pod.Namespace, s.Name, s.Items, s.Optional, mode(s.DefaultMode))
	case v.Secret != nil:
		s := v.Secret
		return out, w.addSecret(ctx, out, pod.Namespace, s.SecretName, s.Items, s.Optional, mode(s.DefaultMode))
	case v.DownwardAPI != nil:
		return out, addDownward(out, pod, v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		perm := mode(v.Projected.DefaultMode)
		for _, source := range v.Projected.Sources {
			var err error
			switch {
			case source.ConfigMap != nil:
				s := source.ConfigMap
				err = w.addConfigMap(ctx, out, pod.Namespace, s.Name, s.Items, s.Optional, perm)
			case source.Secret != nil:
				s := source.Secret
				err = w.addSecret(ctx, out, pod.Namespace, s.Name, s.Items, s.Optional, perm)
			case source.DownwardAPI != nil:
				err = addDownward(out, pod, source.DownwardAPI.Items, perm)
			case source.ServiceAccountToken != nil:
				err = w.addToken(ctx, out, pod, source.ServiceAccountToken, perm)
			default:
				err = fmt.Errorf("this projection is not played by the local cluster")
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("this kind of volume is not played by the local cluster")
}

func mode(m *int32) os.FileMode {
	if m == nil {
		return 0o644
	}
	return os.FileMode(*m) & os.ModePerm
}

func (w *worker) addConfigMap(ctx context.Context, out payload, namespace, name string, items []corev1.KeyToPath, optional *bool, perm os.FileMode) error {
	data, err := configMapData(ctx, w.k.client, namespace, name, optional)
	if err != nil {
		return err
	}
	return addKeys(out, data, items, optional, perm)
}

func (w *worker) addSecret(ctx context.Context, out payload, namespace, name string, items []corev1.KeyToPath, optional *bool, perm os.FileMode) error {
	data, err := secretData(ctx, w.k.client, namespace, name, optional)
	if err != nil {
		return err
	}
	return addKeys(out, data, items, optional, perm)
}

func addKeys(out payload, data map[string]string, items []corev1.KeyToPath, optional *bool, perm os.FileMode) error {
	if len(items) == 0 {
		for key, value := range data {
			out[key] = projected{data: []byte(value), mode: perm}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("references non-existent key %q", item.Key)
		}
		p := perm
		if item.Mode != nil {
			p = mode(item.Mode)
		}
		out[item.Path] = projected{data: []byte(value), mode: p}
	}
	return nil
}

func addDownward(out payload, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, perm os.FileMode) error {
	for _, item := range items {
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = field(pod, item.FieldRef.FieldPath)
		} else if item.ResourceFieldRef != nil {
			value, err = resourceField(pod, item.ResourceFieldRef.ContainerName, item.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		p := perm
		if item.Mode != nil {
			p = mode(item.Mode)
		}
		out[item.Path] = projected{data: []byte(value), mode: p}
	}
	return nil
}

// addToken puts a ServiceAccount token into a volume. It is requested once for the life of the pod: with an
// expiry as long as a local cluster lives.
func (w *worker) addToken(ctx context.Context, out payload, pod *corev1.Pod, s *corev1.ServiceAccountTokenProjection, perm os.FileMode) error {
	token, ok := w.tokens[s.Path]
	if !ok {
		account := &corev1.ServiceAccount{}
		account.Namespace, account.Name = pod.Namespace, pod.Spec.ServiceAccountName
		if account.Name == "" {
			account.Name = "default"
		}
		seconds := int64(365 * 24 * 3600)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		if s.Audience != "" {
			request.Spec.Audiences = []string{s.Audience}
		}
		if err := w.k.client.SubResource("token").Create(ctx, account, request); err != nil {
			return fmt.Errorf("request a token for ServiceAccount %q: %w", account.Name, err)
		}
		token = request.Status.Token
		w.tokens[s.Path] = token
	}
	out[s.Path] = projected{data: []byte(token), mode: perm}
	return nil
}
