package specs

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// Where a node finds its files.
const (
	volumeDir     = "/var/lib/highwater"
	dataDir       = volumeDir + "/data"
	metadataDir   = volumeDir + "/metadata"
	configDir     = "/etc/highwater"
	podInfoDir    = "/etc/podinfo"
	formatPermit  = "format-permit"
	terminationIn = "/dev/termination-log"
)

// ContainerName is the name of a node's only container.
const ContainerName = "node"

// ExitBadVolume is the code that a node exits with when its volume is not the one it should have.
const ExitBadVolume = 78

// user is who nodes run as; any id but 0 does.
const user int64 = 65532

// terminationGraceSeconds bounds the controlled shutdown, in which a node gives up its leaderships.
const terminationGraceSeconds int64 = 60

// Pod builds a node's pod on the volume of the identity. Only a volume that the cluster has not seen yet may be
// formatted, and only with its own directory id. defaultImage is used when the spec names none.
func Pod(rs *hwv1alpha1.ReplicaSet, node Node, identity Identity, defaultImage string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            PodName(rs, node.ID),
			Namespace:       rs.Namespace,
			Labels:          podLabels(rs, node),
			Annotations:     podAnnotations(rs),
			OwnerReferences: []metav1.OwnerReference{ownerReference(rs)},
		},
		Spec: podSpec(rs, node, identity, defaultImage),
	}
	revision, err := revisionOf(pod)
	if err != nil {
		return nil, err
	}
	pod.Annotations[AnnotationRevision] = revision
	if !identity.Formatted {
		pod.Annotations[AnnotationFormatPermit] = identity.DirectoryID.String()
	}
	return pod, nil
}

func podLabels(rs *hwv1alpha1.ReplicaSet, node Node) map[string]string {
	labels := map[string]string{}
	if p := rs.Spec.Pods; p != nil {
		for k, v := range p.Labels {
			labels[k] = string(v)
		}
	}
	maps.Copy(labels, nodeLabels(rs, node))
	if node.Role.HoldsData() {
		labels[LabelServes] = "clients"
	}
	return labels
}

func podAnnotations(rs *hwv1alpha1.ReplicaSet) map[string]string {
	annotations := map[string]string{}
	if p := rs.Spec.Pods; p != nil {
		for k, v := range p.Annotations {
			annotations[k] = string(v)
		}
	}
	return annotations
}

func podSpec(rs *hwv1alpha1.ReplicaSet, node Node, identity Identity, defaultImage string) corev1.PodSpec {
	off, on, uid, grace := false, true, user, terminationGraceSeconds
	onMismatch := corev1.FSGroupChangeOnRootMismatch
	spec := corev1.PodSpec{
		Hostname:                      PodName(rs, node.ID),
		Subdomain:                     NodesServiceName(rs),
		AutomountServiceAccountToken:  &off, // nodes hold no credentials of Kubernetes
		EnableServiceLinks:            &off,
		TerminationGracePeriodSeconds: &grace,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:        &on,
			RunAsUser:           &uid,
			RunAsGroup:          &uid,
			FSGroup:             &uid,
			FSGroupChangePolicy: &onMismatch,
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers:                []corev1.Container{container(rs, node, identity, defaultImage)},
		Volumes:                   volumes(rs, node),
		TopologySpreadConstraints: topologySpread(rs, node),
	}
	if p := rs.Spec.Pods; p != nil {
		for k, v := range p.NodeSelector {
			if spec.NodeSelector == nil {
				spec.NodeSelector = map[string]string{}
			}
			spec.NodeSelector[k] = string(v)
		}
		for _, t := range p.Tolerations {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
				Key: t.Key, Operator: t.Operator, Value: string(t.Value), Effect: t.Effect, TolerationSeconds: t.TolerationSeconds,
			})
		}
	}
	return spec
}

func container(rs *hwv1alpha1.ReplicaSet, node Node, identity Identity, defaultImage string) corev1.Container {
	off, on := false, true
	image := rs.Spec.Image
	if image == "" {
		image = defaultImage
	}
	c := corev1.Container{
		Name:                     ContainerName,
		Image:                    image,
		ImagePullPolicy:          corev1.PullIfNotPresent,
		Command:                  append([]string{"/highwater-node", "run"}, flags(rs, node, identity)...),
		Ports:                    containerPorts(node),
		StartupProbe:             startupProbe(),
		LivenessProbe:            livenessProbe(),
		ReadinessProbe:           readinessProbe(),
		TerminationMessagePath:   terminationIn,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &off,
			ReadOnlyRootFilesystem:   &on,
			RunAsNonRoot:             &on,
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "data", MountPath: volumeDir},
			{Name: "config", MountPath: configDir, ReadOnly: true},
			{Name: "podinfo", MountPath: podInfoDir, ReadOnly: true},
		},
	}
	if r := rs.Spec.Resources; r != nil {
		c.Resources = corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
	}
	return c
}

// flags of highwater-node run. A node has only the listeners that its role needs.
func flags(rs *hwv1alpha1.ReplicaSet, node Node, identity Identity) []string {
	roles := map[hwv1alpha1.NodeRole]string{
		hwv1alpha1.RoleData: "data", hwv1alpha1.RoleVoter: "voter", hwv1alpha1.RoleCombined: "voter,data",
	}[node.Role]
	args := []string{
		fmt.Sprintf("--config=%s/%s", configDir, configFile),
		fmt.Sprintf("--node-id=%d", node.ID),
		"--roles=" + roles,
		"--directory-id=" + identity.DirectoryID.String(),
		"--data-dir=" + dataDir,
		"--metadata-dir=" + metadataDir,
		fmt.Sprintf("--format-permit-file=%s/%s", podInfoDir, formatPermit),
		"--termination-log=" + terminationIn,
		fmt.Sprintf("--listener-http=0.0.0.0:%d", PortHTTP),
	}
	listener := func(name string, port int32) {
		args = append(args,
			fmt.Sprintf("--listener-%s=0.0.0.0:%d", name, port),
			fmt.Sprintf("--advertised-%s=%s:%d", name, Host(rs, node.ID), port))
	}
	if node.Role.Votes() {
		listener("controller", PortController)
		args = append(args, "--await-permit-withdrawal")
	}
	if node.Role.HoldsData() {
		listener("internal", PortInternal)
		listener("external", PortExternal)
	}
	return args
}

func containerPorts(node Node) []corev1.ContainerPort {
	ports := []corev1.ContainerPort{{Name: "http", ContainerPort: PortHTTP, Protocol: corev1.ProtocolTCP}}
	if node.Role.Votes() {
		ports = append(ports, corev1.ContainerPort{Name: "controller", ContainerPort: PortController, Protocol: corev1.ProtocolTCP})
	}
	if node.Role.HoldsData() {
		ports = append(ports,
			corev1.ContainerPort{Name: "internal", ContainerPort: PortInternal, Protocol: corev1.ProtocolTCP},
			corev1.ContainerPort{Name: "external", ContainerPort: PortExternal, Protocol: corev1.ProtocolTCP})
	}
	return ports
}

func volumes(rs *hwv1alpha1.ReplicaSet, node Node) []corev1.Volume {
	return []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(rs, node.ID)},
		}},
		{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: ConfigMapName(rs)}},
		}},
		// A volume and not an environment variable: the permit is withdrawn while the pod runs, and a container
		// that restarts must see that.
		{Name: "podinfo", VolumeSource: corev1.VolumeSource{
			DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     formatPermit,
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + AnnotationFormatPermit + "']"},
			}}},
		}},
	}
}
