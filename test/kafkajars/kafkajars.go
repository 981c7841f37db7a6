// Package kafkajars finds Apache Kafka for proofs that run beside it.
package kafkajars

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// ErrMissing says that Java, or what fetches Kafka's jars, is not on this machine. The script has told why.
var ErrMissing = errors.New("there is no Apache Kafka here, see above")

// exitNotRun is what the script exits with then.
const exitNotRun = 3

// Fetch puts the jars into the user's cache unless they are there. It must be called from the root of the source tree.
func Fetch(ctx context.Context) error {
	command := exec.CommandContext(ctx, "hack/kafka/fetch.sh")
	command.Stderr = os.Stderr
	err := command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitNotRun {
		return ErrMissing
	}
	return err
}
