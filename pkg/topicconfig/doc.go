// Package topicconfig is the one table of the topic configs that this engine knows: names, types, defaults,
// limits and documentation, for the controller that checks them, the nodes that act on them and DescribeConfigs.
//
// A key stands in the table only when the engine acts on it, or when it has just one value that the engine acts
// by; Kafka's other keys are refused by name, so that nobody relies on what does not happen.
package topicconfig
