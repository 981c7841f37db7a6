package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAddressesAreNotReusedSoon(t *testing.T) {
	n := &Network{mode: AddressOwn, prefix: "127.9.9.", used: map[string]bool{}, ports: map[int]bool{}, last: 9}
	pod := &corev1.Pod{}
	first, err := n.allocate(pod)
	if err != nil || first.ip != "127.9.9.10" || first.at(80) != "127.9.9.10:80" {
		t.Fatalf("%+v, %v", first, err)
	}
	n.free(first)
	for range 244 {
		a, err := n.allocate(pod)
		if err != nil || a.ip == first.ip {
			t.Fatalf("%+v, %v: given again while others were free", a, err)
		}
	}
	if a, err := n.allocate(pod); err != nil || a.ip != first.ip {
		t.Fatalf("the last free address: %+v, %v", a, err)
	}
	if a, err := n.allocate(pod); err == nil {
		t.Fatalf("there was one more: %+v", a)
	}
}

func TestSharedAddressGivesEachDeclaredPortAFreeOne(t *testing.T) {
	n, err := NewNetwork(AddressShared)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 2}}}}}}
	seen := map[string]bool{}
	for range 20 {
		a, err := n.allocate(pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range []int32{1, 2} {
			if seen[a.at(port)] {
				t.Fatalf("%s was given twice", a.at(port))
			}
			seen[a.at(port)] = true
		}
	}
	if _, err := NewNetwork("else"); err == nil {
		t.Error("an unknown mode was taken")
	}
}
