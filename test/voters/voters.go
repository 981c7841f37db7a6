package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/test/devcluster"
)

// identity is a voter: a node with a certain directory.
type identity struct {
	id        ident.NodeID
	directory ident.UUID
}

func voterClaim(id int32) types.NamespacedName {
	return types.NamespacedName{Namespace: devcluster.Namespace, Name: fmt.Sprintf("data-%s-%d", devcluster.SampleReplicaSet, id)}
}

// voterPods checks that exactly these voters have a pod.
func (p *proof) voterPods(ctx context.Context, want []int32) error {
	var pods corev1.PodList
	labels := client.MatchingLabels{specs.LabelReplicaSet: devcluster.SampleReplicaSet, specs.LabelRole: "voter"}
	if err := p.Client.List(ctx, &pods, client.InNamespace(devcluster.Namespace), labels); err != nil {
		return err
	}
	var have []string
	for i := range pods.Items {
		have = append(have, pods.Items[i].Name)
	}
	slices.Sort(have)
	var wanted []string
	for _, id := range want {
		wanted = append(wanted, devcluster.SamplePod(id))
	}
	if !slices.Equal(have, wanted) {
		return fmt.Errorf("pods of voters: %v, want %v", have, wanted)
	}
	return nil
}

// volume is the directory behind a claim, and the identity that the claim gives it.
func (p *proof) volume(ctx context.Context, id int32) (dir string, directory ident.UUID, err error) {
	var claim corev1.PersistentVolumeClaim
	if err := p.Client.Get(ctx, voterClaim(id), &claim); err != nil {
		return "", directory, err
	}
	var volume corev1.PersistentVolume
	if err := p.Client.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName}, &volume); err != nil {
		return "", directory, err
	}
	if volume.Spec.HostPath == nil {
		return "", directory, fmt.Errorf("volume %s is no directory", volume.Name)
	}
	directory, err = ident.ParseUUID(claim.Annotations[specs.AnnotationDirectoryID])
	return volume.Spec.HostPath.Path, directory, err
}

// votersOf reads from a voter's metadata log, as it lies on its disk, which voter sets there were, in order.
func votersOf(dir string) ([]batch.Voters, error) {
	var sets []batch.Voters
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Base(filepath.Dir(path)) != "__cluster_metadata-0" || !strings.HasSuffix(path, ".log") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for b, err := range metadata.ReadBatches(raw) {
			if errors.Is(err, batch.ErrTruncated) || errors.Is(err, batch.ErrCorrupt) {
				return nil // it is being written
			}
			if err != nil {
				return err
			}
			for _, c := range b.Control {
				if c.Type != batch.VotersType {
					continue
				}
				set, err := batch.DecodeVoters(c.Value)
				if err != nil {
					return err
				}
				sets = append(sets, set)
			}
		}
		return nil
	})
	return sets, err
}

// history checks the voter sets in the log of the voter that is there from the beginning to the end.
func (p *proof) history(ctx context.Context) error {
	dir, _, err := p.volume(ctx, 1000)
	if err != nil {
		return err
	}
	sets, err := votersOf(dir)
	if err != nil {
		return err
	}
	if len(sets) < 2 {
		return fmt.Errorf("%d voter sets in the metadata log", len(sets))
	}
	before, gone := map[identity]bool{}, map[identity]bool{}
	sizes := []string{}
	for i, set := range sets {
		now := map[identity]bool{}
		changed := 0
		for _, v := range set.Voters {
			k := identity{v.ID, v.DirectoryID}
			now[k] = true
			if !before[k] {
				changed++
			}
		}
		for k := range before {
			if !now[k] {
				gone[k] = true
				changed++
			}
		}
		if i > 0 && changed > 1 {
			return fmt.Errorf("voter set %d of the log differs from the one before by %d voters: %+v", i, changed, set)
		}
		before = now
		sizes = append(sizes, fmt.Sprint(len(set.Voters)))
	}
	for _, lost := range p.lost {
		if before[lost] || !gone[lost] {
			return fmt.Errorf("voter %d under its lost directory %s is in the voter set, or never was", lost.id, lost.directory)
		}
	}
	p.Say("  %d voter sets in the metadata log, each but one voter from the next; sizes %s", len(sets), strings.Join(sizes, " "))
	return nil
}

// volumeLost empties a voter's volume and kills it, sees it stop for that, and gives the claim up as a person does.
func (p *proof) volumeLost(ctx context.Context) error {
	rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	victim := int32(1002)
	if rs.Status.Quorum.LeaderID == victim {
		victim = 1001
	}
	dir, old, err := p.volume(ctx, victim)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	if _, err := localkube.Signal(p.Dir, devcluster.SamplePod(victim), localkube.Kill); err != nil {
		return err
	}
	from := time.Now()
	err = p.Eventually(ctx, 90*time.Second, func(ctx context.Context) error {
		rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(rs.Status.Conditions, hwv1alpha1.ReplicaSetReady)
		if c == nil || c.Reason != hwv1alpha1.ReasonVolumeLost || !strings.Contains(c.Message, "delete claim "+voterClaim(victim).Name) {
			return fmt.Errorf("the ReplicaSet's Ready is %+v", c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.Say("  voter %d stops with VolumeLost, after %v; its claim is deleted", victim, time.Since(from).Round(100*time.Millisecond))
	from = time.Now()
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = voterClaim(victim).Namespace, voterClaim(victim).Name
	if err := p.Client.Delete(ctx, claim); err != nil {
		return err
	}
	err = p.Eventually(ctx, 120*time.Second, func(ctx context.Context) error {
		_, directory, err := p.volume(ctx, victim)
		if apierrors.IsNotFound(err) || err == nil && directory == old {
			err = errors.New("there is no new volume yet")
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := p.settled(ctx, 3); err != nil {
		return err
	}
	p.lost = append(p.lost, identity{ident.NodeID(victim), old})
	p.events[hwv1alpha1.EventVoterRemoved]++
	p.events[hwv1alpha1.EventVoterAdded]++
	p.events[hwv1alpha1.EventVoterReplaced]++
	p.events[hwv1alpha1.EventNodeRetired]++ // the pod that held the claim
	p.Say("  it votes under another directory, after %v", time.Since(from).Round(100*time.Millisecond))
	return nil
}
