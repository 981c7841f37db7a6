package replicaset

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// settleVoters brings the voter set one step nearer to what the spec says (KIP-853): one change at a time, each safe to
// repeat. At rest it asks nobody: the committed set comes with the metadata log.
func (r *Reconciler) settleVoters(ctx context.Context, f facts, admin cluster.Admin) voterStep {
	if f.state.Reach != cluster.Following || f.state.Image == nil || len(f.state.Voters) == 0 {
		return voterStep{}
	}
	wanted := candidates(f)
	if sameVoters(wanted, f.state.Voters) {
		return voterStep{}
	}
	quorum, err := admin.Quorum(ctx)
	if err != nil {
		return voterStep{reason: hwv1alpha1.ReasonVotersChanging, message: "the quorum's leader was not heard: " + lasting(err)}
	}
	step := nextVoterStep(wanted, f.state.Voters, quorum)
	switch {
	case step.add != nil:
		err = admin.AddVoter(ctx, *step.add, address(f.rs, int32(step.add.ID), specs.PortController))
	case step.remove != nil:
		err = admin.RemoveVoter(ctx, *step.remove)
	default:
		return step
	}
	var refused *cluster.RefusedError
	switch {
	case errors.As(err, &refused):
		step.reason = hwv1alpha1.ReasonVoterChangeBlocked
	case err != nil && step.add != nil:
		step.reason = hwv1alpha1.ReasonVoterCatchingUp
	case err == nil:
		log.FromContext(ctx).Info("the voters of the metadata quorum were changed", "add", step.add, "remove", step.remove)
		return step
	}
	step.message += "; the quorum's leader says: " + lasting(err)
	return step
}

// ownPort is the near end of a connection in an error of the net package.
var ownPort = regexp.MustCompile(`(\[[0-9a-fA-F:.%\w]+\]|[0-9.]+):[0-9]+->`)

// lasting is an error's text without what is another one at each attempt: a condition whose message has it would be
// written, and bring the next attempt, for as long as the error lasts.
func lasting(err error) string { return ownPort.ReplaceAllString(err.Error(), "") }

// candidates are the nodes that the spec wants to vote. One whose claim is gone stays as it is in the quorum: the claim
// may come back.
func candidates(f facts) []candidate {
	var wanted []candidate
	for _, node := range specs.Nodes(f.rs) {
		if !node.Role.Votes() {
			continue
		}
		c, has := f.found.claims[node.ID]
		if !has || !c.DeletionTimestamp.IsZero() {
			i := slices.IndexFunc(f.state.Voters, func(v cluster.Voter) bool { return v.ID == ident.NodeID(node.ID) })
			if i >= 0 {
				wanted = append(wanted, candidate{Voter: f.state.Voters[i]})
			}
			continue
		}
		wanted = append(wanted, candidate{
			Voter: voterOf(c.Identity), pod: specs.PodName(f.rs, node.ID), formatted: c.Formatted, listens: listensAsVoter(f.found.pods[node.ID]),
		})
	}
	return wanted
}

func sameVoters(wanted []candidate, actual []cluster.Voter) bool {
	return len(wanted) == len(actual) && !slices.ContainsFunc(wanted, func(c candidate) bool { return !slices.Contains(actual, c.Voter) })
}

// listensAsVoter says whether the pod was made as a voter's.
func listensAsVoter(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == specs.PortController })
	})
}

// verdict is the gate's word that a pod that lives may be deleted, and why.
type verdict struct {
	pod  *corev1.Pod
	why  string
	tell string // reason of the event
}

// deleteLivingPod is the only place where a pod that runs is deleted.
func (r *Reconciler) deleteLivingPod(ctx context.Context, rs *hwv1alpha1.ReplicaSet, v verdict) error {
	// Told before it is done: nobody would be told of what was done just before the operator died.
	if err := r.Events.Write(ctx, hwv1alpha1.KindReplicaSet, rs, report.Event{
		Reason: v.tell, Key: string(v.pod.UID), Message: fmt.Sprintf("pod %s is deleted: %s", v.pod.Name, v.why),
	}); err != nil {
		return err
	}
	return describe(client.IgnoreNotFound(r.Client.Delete(ctx, v.pod, client.Preconditions{UID: &v.pod.UID})), "delete", v.pod)
}

// retireVoters lets go of dedicated voters that the voter set has no more: the pod, and by the retention the volume. A
// volume that is kept is taken up again when the spec wants the voter back: it has forgotten nothing. The committed set
// does not tell of a voter whose coming was appended and not committed, which may need that very voter: so the quorum's
// leader must not count on it either. What it returns says what that waits for.
func (r *Reconciler) retireVoters(ctx context.Context, f facts, admin cluster.Admin) (waits voterStep, err error) {
	pods, claims := retired(f)
	if len(pods) == 0 && len(claims) == 0 {
		return voterStep{}, nil
	}
	quorum, err := admin.Quorum(ctx)
	if err != nil {
		return voterStep{reason: hwv1alpha1.ReasonVotersChanging, message: "the quorum's leader was not heard: " + lasting(err)}, nil
	}
	countedOn := func(id int32) bool {
		return slices.ContainsFunc(quorum.Voters, func(v cluster.ReplicaState) bool { return v.ID == ident.NodeID(id) })
	}
	for _, id := range pods {
		if countedOn(id) {
			waits = voterStep{reason: hwv1alpha1.ReasonVotersChanging, message: fmt.Sprintf("voter %d is on its way into the quorum, and leaves it then", id)}
			continue
		}
		v := verdict{f.found.pods[id], fmt.Sprintf("the spec wants voter %d no more, and the quorum has the voters %s", id, voterIDs(f.state.Voters)), hwv1alpha1.EventNodeRetired}
		if err := r.deleteLivingPod(ctx, f.rs, v); err != nil {
			return waits, err
		}
	}
	for _, id := range claims {
		if countedOn(id) {
			continue
		}
		c := f.found.claims[id]
		uid := c.UID
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, c.PersistentVolumeClaim, client.Preconditions{UID: &uid})); err != nil {
			return waits, describe(err, "delete", c.PersistentVolumeClaim)
		}
	}
	return waits, nil
}

// retired are the ids of the pods and claims of dedicated voters that neither the spec nor the committed voter set has.
func retired(f facts) (pods, claims []int32) {
	if f.state.Reach != cluster.Following || f.state.Image == nil || len(f.state.Voters) == 0 {
		return nil, nil
	}
	goesOn := func(id int32) bool {
		return specs.RoleOf(f.rs, id) != hwv1alpha1.RoleVoter || slices.ContainsFunc(f.nodes, func(n specs.Node) bool { return n.ID == id })
	}
	for _, id := range sortedIDs(f.found.pods) {
		if !goesOn(id) && f.found.pods[id].DeletionTimestamp.IsZero() {
			pods = append(pods, id)
		}
	}
	for _, id := range sortedIDs(f.found.claims) {
		c := f.found.claims[id]
		if !goesOn(id) && c.DeletionTimestamp.IsZero() && f.found.pods[id] == nil && specs.IsOwner(f.rs, c.PersistentVolumeClaim) {
			claims = append(claims, id) // under Retain a claim has no owner, and stays
		}
	}
	return pods, claims
}

// releaseLostVoters deletes the pod of a voter whose volume is given up: one that stopped for its empty volume and keeps
// the claim from going that somebody has deleted, and one that was made for a volume which was replaced. Neither does
// anything for the quorum any more, whose rest must be able to go on.
func (r *Reconciler) releaseLostVoters(ctx context.Context, f facts) error {
	if f.state.Reach != cluster.Following || f.state.Image == nil {
		return nil
	}
	for _, node := range f.nodes {
		pod, c := f.found.pods[node.ID], f.found.claims[node.ID]
		if node.Role != hwv1alpha1.RoleVoter || pod == nil || !pod.DeletionTimestamp.IsZero() || c.PersistentVolumeClaim == nil || len(f.state.Voters) < 2 {
			continue
		}
		why := ""
		if message, refused := badVolume(pod); refused && !c.DeletionTimestamp.IsZero() {
			why = "its claim is being deleted, and the node can't run on it: " + message
		}
		if c.DeletionTimestamp.IsZero() && !madeFor(pod, c.Identity) {
			why = "it was made for a volume that was replaced"
		}
		if why == "" {
			continue
		}
		if err := r.deleteLivingPod(ctx, f.rs, verdict{pod, why, hwv1alpha1.EventNodeRetired}); err != nil {
			return err
		}
	}
	return nil
}

// madeFor says whether a pod's node runs with this directory id.
func madeFor(pod *corev1.Pod, identity specs.Identity) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Command, "--directory-id="+identity.DirectoryID.String()) || slices.Contains(c.Args, "--directory-id="+identity.DirectoryID.String())
	})
}
