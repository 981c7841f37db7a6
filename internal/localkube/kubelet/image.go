package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
)

// Image says what stands in for a container image: a directory with executables.
type Image struct {
	// Dir holds the executables. A command such as /highwater-node is the file of that base name in it.
	Dir string
	// Entrypoint is the command of containers that name none.
	Entrypoint []string
}

// AnyImage is the key of the entry that stands in for all images that have none of their own.
const AnyImage = "*"

// Images maps image names, as pods write them, to directories.
type Images map[string]Image

// resolve returns the executable and the arguments of a command in an image.
func (i Images) resolve(image string, command, args []string) (path string, argv []string, err error) {
	entry, ok := i[image]
	if !ok {
		entry, ok = i[AnyImage]
	}
	if !ok {
		return "", nil, fmt.Errorf("no directory of executables stands in for image %q", image)
	}
	if len(command) == 0 {
		command = entry.Entrypoint
	}
	argv = append(append(argv, command...), args...)
	if len(argv) == 0 {
		return "", nil, fmt.Errorf("the container names no command, and image %q has no entrypoint", image)
	}
	path = filepath.Join(entry.Dir, filepath.Base(argv[0]))
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, fmt.Errorf("command %q of image %q: %w", argv[0], image, err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return "", nil, fmt.Errorf("command %q of image %q: %s is not executable", argv[0], image, path)
	}
	return path, argv[1:], nil
}
