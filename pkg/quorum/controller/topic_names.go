package controller

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/pkg/metadata"
)

// maxTopicName leaves room for what a log directory's name adds.
const maxTopicName = 249

const legalInTopicNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// checkTopicName says what is wrong with the name of a new topic, in Kafka's words.
func checkTopicName(name string) *refusal {
	switch {
	case name == "":
		return refuse(kerr.InvalidTopicException, *text("Topic name is invalid: the empty string is not allowed"))
	case name == "." || name == "..":
		return refuse(kerr.InvalidTopicException, *text("Topic name is invalid: '.' or '..' is not allowed"))
	case len(name) > maxTopicName:
		return refuse(kerr.InvalidTopicException, *text("Topic name is invalid: the length of '%.64s...' is longer than the max allowed length %d", name, maxTopicName))
	case strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(legalInTopicNames, r) }):
		return refuse(kerr.InvalidTopicException, *text("Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name))
	}
	return nil
}

// collisionKey is the same for two names that metric names could not tell apart.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// collisions finds existing topics whose names differ from new ones by '.' and '_' only.
type collisions map[string]string

// of returns the collisions known so far and those with the topics of the image. It is made when first needed:
// most names have neither character.
func (x collisions) of(image *metadata.Image) collisions {
	if x != nil {
		return x
	}
	x = collisions{}
	for topic := range image.Topics() {
		if strings.ContainsAny(topic.Name, "._") {
			x[collisionKey(topic.Name)] = topic.Name
		}
	}
	return x
}
