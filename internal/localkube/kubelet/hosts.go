package kubelet

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// HostsVariable is the environment variable that tells a process where its hosts file is.
const HostsVariable = "HIGHWATER_HOSTS_FILE"

// clientListener is the listener that clients outside of the cluster dial: its address is advertised as it is,
// without a fault proxy, since clients are no participants.
const clientListener = "EXTERNAL"

// endpoint is what the hosts files say of one pod.
type endpoint struct {
	participant string            // namespace/name
	host        string            // DNS name, empty when the pod has none
	ports       map[string]int32  // listener -> declared port
	addresses   map[string]string // listener -> address
	file        string            // its own hosts file
}

// newEndpoint returns what others need to know of a pod. A pod has a DNS name when its spec has a subdomain, as
// under a headless Service with publishNotReadyAddresses; the listeners are its named ports, in upper case.
func newEndpoint(pod *corev1.Pod, a podAddress, file string) endpoint {
	e := endpoint{participant: pod.Namespace + "/" + pod.Name, ports: map[string]int32{}, addresses: map[string]string{}, file: file}
	if pod.Spec.Subdomain != "" {
		host := cmp.Or(pod.Spec.Hostname, pod.Name)
		e.host = fmt.Sprintf("%s.%s.%s.svc", host, pod.Spec.Subdomain, pod.Namespace)
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == "" || p.Protocol == corev1.ProtocolUDP {
				continue
			}
			listener := listenerName(p.Name)
			e.ports[listener] = p.ContainerPort
			e.addresses[listener] = a.at(p.ContainerPort)
		}
	}
	return e
}

// publish makes an endpoint known and writes its own file before it returns: a container needs it to bind.
func (k *Kubelet) publish(e endpoint) error {
	k.hostsMu.Lock()
	defer k.hostsMu.Unlock()
	k.endpoints[e.participant] = e
	if err := k.writeHosts(e); err != nil {
		return err
	}
	k.hostsDirty()
	return nil
}

// withdraw forgets an endpoint.
func (k *Kubelet) withdraw(participant string) {
	k.hostsMu.Lock()
	defer k.hostsMu.Unlock()
	delete(k.endpoints, participant)
	k.o.Faults.Remove(participant)
	k.hostsDirty()
}

// AddParticipant gives a process that is no pod a hosts file and a name in fault rules.
func (k *Kubelet) AddParticipant(name, file string) error {
	return k.publish(endpoint{participant: name, file: file})
}

// Participants returns the names that fault rules may use, sorted.
func (k *Kubelet) Participants() []string {
	k.hostsMu.Lock()
	defer k.hostsMu.Unlock()
	out := make([]string, 0, len(k.endpoints))
	for name := range k.endpoints {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// hostsDirty asks for all hosts files to be written.
func (k *Kubelet) hostsDirty() {
	select {
	case k.hostsWake <- struct{}{}:
	default:
	}
}

// keepHosts writes hosts files whenever a pod came, went or moved.
func (k *Kubelet) keepHosts() {
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.hostsWake:
		}
		k.hostsMu.Lock()
		for _, e := range k.endpoints {
			if err := k.writeHosts(e); err != nil {
				k.log.Error(err, "write a hosts file", "of", e.participant)
			}
		}
		k.hostsMu.Unlock()
	}
}

// writeHosts writes the file of one participant when its content changed. The caller holds hostsMu.
func (k *Kubelet) writeHosts(e endpoint) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# How %s finds and is found, written by the local cluster.\n", e.participant)
	for _, listener := range sortedKeys(e.addresses) {
		fmt.Fprintf(&out, "listen %s %s\n", listener, e.addresses[listener])
	}
	if addr, ok := e.addresses[clientListener]; ok {
		fmt.Fprintf(&out, "advertise %s %s\n", clientListener, addr)
	}
	for _, name := range sortedKeys(k.endpoints) {
		other := k.endpoints[name]
		if other.host == "" {
			continue
		}
		for _, listener := range sortedKeys(other.addresses) {
			addr := other.addresses[listener]
			if name != e.participant && !k.o.DirectPeers {
				var err error
				if addr, err = k.o.Faults.Address(e.participant, name, listener); err != nil {
					return err
				}
			}
			fmt.Fprintf(&out, "%s:%d %s\n", other.host, other.ports[listener], addr)
		}
	}
	if have, err := os.ReadFile(e.file); err == nil && bytes.Equal(have, out.Bytes()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(e.file), 0o755); err != nil {
		return err
	}
	temp := e.file + ".new"
	if err := os.WriteFile(temp, out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, e.file)
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// listenerName is the name of a port in hosts files and fault rules.
func listenerName(port string) string { return strings.ToUpper(port) }
