package replicaset

import (
	"slices"
	"strconv"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

type topicIndex struct {
	topic string
	index int32
}

// count counts the partitions of an image. managed are those that have a Partition object; defaultMinISR holds for
// topics that say nothing.
func count(image *metadata.Image, managed map[topicIndex]bool, defaultMinISR int32) hwv1alpha1.PartitionCounts {
	var c hwv1alpha1.PartitionCounts
	for topic := range image.Topics() {
		minISR := defaultMinISR
		if text, set := image.Config(metadata.ResourceTopic, topic.Name).Get(topicconfig.MinInsyncReplicas); set {
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				minISR = int32(n)
			}
		}
		for index, partition := range topic.Partitions() {
			c.Total++
			if len(partition.ISR) < len(partition.Replicas) {
				c.UnderReplicated++
			}
			if len(partition.ISR) < min(int(minISR), len(partition.Replicas)) {
				c.UnderMinISR++
			}
			if partition.Leader < 0 {
				c.Offline++
			}
			if slices.Contains(partition.Directories, ident.LostDirectory) {
				c.Damaged++
			}
			if !managed[topicIndex{topic.Name, index}] {
				c.Unmanaged++
			}
		}
	}
	return c
}
