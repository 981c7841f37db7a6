package kubelet

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// environment returns the variables that a container's spec asks for, in order, with $(NAME) expanded.
func environment(ctx context.Context, reader client.Reader, pod *corev1.Pod, c *corev1.Container) ([]corev1.EnvVar, error) {
	var out []corev1.EnvVar
	values := map[string]string{}
	set := func(name, value string) {
		values[name] = value
		out = slices.DeleteFunc(out, func(v corev1.EnvVar) bool { return v.Name == name })
		out = append(out, corev1.EnvVar{Name: name, Value: value})
	}
	for _, from := range c.EnvFrom {
		var data map[string]string
		var err error
		switch {
		case from.ConfigMapRef != nil:
			data, err = configMapData(ctx, reader, pod.Namespace, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			data, err = secretData(ctx, reader, pod.Namespace, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			set(from.Prefix+key, data[key])
		}
	}
	for _, v := range c.Env {
		value, ok, err := envValue(ctx, reader, pod, c, v, values)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		if ok {
			set(v.Name, value)
		}
	}
	return out, nil
}

func envValue(ctx context.Context, reader client.Reader, pod *corev1.Pod, c *corev1.Container, v corev1.EnvVar, values map[string]string) (string, bool, error) {
	from := v.ValueFrom
	if from == nil {
		return expand(v.Value, values), true, nil
	}
	pick := func(data map[string]string, err error, key string, optional *bool) (string, bool, error) {
		value, ok := data[key]
		if err == nil && !ok && (optional == nil || !*optional) {
			err = fmt.Errorf("there is no key %q", key)
		}
		return value, ok, err
	}
	switch {
	case from.FieldRef != nil:
		value, err := field(pod, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := resourceField(pod, c.Name, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := configMapData(ctx, reader, pod.Namespace, ref.Name, ref.Optional)
		return pick(data, err, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := secretData(ctx, reader, pod.Namespace, ref.Name, ref.Optional)
		return pick(data, err, ref.Key, ref.Optional)
	}
	return "", false, fmt.Errorf("this kind of valueFrom is not played by the local cluster")
}

func configMapData(ctx context.Context, reader client.Reader, namespace, name string, optional *bool) (map[string]string, error) {
	var cm corev1.ConfigMap
	if err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &cm); err != nil {
		if apierrors.IsNotFound(err) && optional != nil && *optional {
			return nil, nil
		}
		return nil, err
	}
	data := make(map[string]string, len(cm.Data)+len(cm.BinaryData))
	maps.Copy(data, cm.Data)
	for key, value := range cm.BinaryData {
		data[key] = string(value)
	}
	return data, nil
}

func secretData(ctx context.Context, reader client.Reader, namespace, name string, optional *bool) (map[string]string, error) {
	var secret corev1.Secret
	if err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &secret); err != nil {
		if apierrors.IsNotFound(err) && optional != nil && *optional {
			return nil, nil
		}
		return nil, err
	}
	data := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data, nil
}

// expand replaces $(NAME) by a variable that was set before; $$ is a $, and an unknown name stays as written.
func expand(s string, values map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			value, ok := "", false
			if end > 0 {
				value, ok = values[s[i+2:i+end]]
			}
			if !ok {
				out.WriteByte('$')
				continue
			}
			out.WriteString(value)
			i += end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// field returns a field of the pod as the downward API names it.
func field(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return fieldMap(pod.Labels), nil
	case "metadata.annotations":
		return fieldMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return pod.Status.PodIP, nil
	case "status.hostIP", "status.hostIPs":
		return pod.Status.HostIP, nil
	}
	for prefix, values := range map[string]map[string]string{"metadata.labels['": pod.Labels, "metadata.annotations['": pod.Annotations} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			if key, ok = strings.CutSuffix(key, "']"); ok {
				return values[key], nil
			}
		}
	}
	return "", fmt.Errorf("unknown field %q", path)
}

// fieldMap formats labels or annotations as the kubelet does.
func fieldMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%v=%q", key, m[key]))
	}
	return strings.Join(lines, "\n")
}

// resourceField returns a request or limit; without one, what the whole machine has stands for it, as a kubelet says.
func resourceField(pod *corev1.Pod, container string, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != container {
			continue
		}
		list, name, _ := strings.Cut(ref.Resource, ".")
		quantity, ok := c.Resources.Requests[corev1.ResourceName(name)]
		if limit, has := c.Resources.Limits[corev1.ResourceName(name)]; list == "limits" && has || !ok {
			quantity, ok = limit, has
		}
		if !ok {
			quantity = nodeCapacity()[corev1.ResourceName(name)]
		}
		divisor := ref.Divisor
		if divisor.IsZero() {
			divisor = resource.MustParse("1")
		}
		return strconv.FormatInt(int64(math.Ceil(quantity.AsApproximateFloat64()/divisor.AsApproximateFloat64())), 10), nil
	}
	return "", fmt.Errorf("the pod has no container %q", container)
}
