//go:build !unix

package vfs

import (
	"errors"
	"os"
)

func flock(*os.File) error { return errors.ErrUnsupported }
