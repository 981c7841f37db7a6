package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/highwater-io/highwater/test/devcluster"
)

// volume is an ext4 file system on a loop device whose image lies on a file system of a size of its own: so it can be
// full, fail, and be repaired.
type volume struct {
	dir     string // of the images, ours
	at      string // where it is mounted
	backing string // a tmpfs that holds the image; "" when the image lies in dir
	image   string
	device  string
	mounted bool
}

// tools are the programs that a volume needs.
var tools = []string{"losetup", "mkfs.ext4", "fsck.ext4", "mount", "umount"}

// usable says why volumes can't be made here.
func usable(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: loop devices and mounts need root", devcluster.ErrNotRun)
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %w", devcluster.ErrNotRun, err)
		}
	}
	dir, err := os.MkdirTemp("", "highwater-disk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	v := &volume{dir: dir, at: filepath.Join(dir, "try")}
	if err := errors.Join(os.Mkdir(v.at, 0o755), v.create(ctx, 8<<20)); err != nil {
		return fmt.Errorf("%w: %w", devcluster.ErrNotRun, errors.Join(err, v.remove(ctx)))
	}
	return v.remove(ctx)
}

func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), err
}

// create makes the image and mounts it. mkfs are further arguments of mkfs.ext4.
func (v *volume) create(ctx context.Context, bytes int64, mkfs ...string) error {
	v.image = filepath.Join(v.dir, "volume.img")
	if v.backing != "" {
		v.image = filepath.Join(v.backing, "volume.img")
	}
	f, err := os.Create(v.image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(bytes), f.Close()); err != nil {
		return err
	}
	args := append([]string{"-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, mkfs...)
	if _, err := run(ctx, "mkfs.ext4", append(args, v.image)...); err != nil {
		return err
	}
	if v.device, err = run(ctx, "losetup", "--find", "--show", v.image); err != nil {
		return err
	}
	return v.mount(ctx)
}

// thin puts the image on a tmpfs of a size: the volume promises more than there is, as thin volumes do.
func (v *volume) thin(ctx context.Context, bytes int64) error {
	backing := filepath.Join(v.dir, "backing")
	if err := os.MkdirAll(backing, 0o755); err != nil {
		return err
	}
	if _, err := run(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", bytes), "highwater-disk", backing); err != nil {
		return err
	}
	v.backing = backing
	return nil
}

// grow gives the tmpfs below a thin volume another size.
func (v *volume) grow(ctx context.Context, bytes int64) error {
	_, err := run(ctx, "mount", "-o", fmt.Sprintf("remount,size=%d", bytes), v.backing)
	return err
}

// mount mounts the device. After an error the kernel makes it read-only, as Linux distributions have it.
func (v *volume) mount(ctx context.Context) error {
	_, err := run(ctx, "mount", "-o", "errors=remount-ro", v.device, v.at)
	v.mounted = v.mounted || err == nil
	return err
}

// unmount waits for nobody: whoever has files open keeps them.
func (v *volume) unmount(ctx context.Context) error {
	if !v.mounted {
		return nil
	}
	_, err := run(ctx, "umount", "--lazy", v.at)
	v.mounted = v.mounted && err != nil
	return err
}

// fault has the kernel meet an error on the volume, which makes it read-only.
func (v *volume) fault() error {
	return os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(v.device), "trigger_fs_error"), []byte("highwater e2e-disk\n"), 0o200)
}

// repair unmounts the volume wholly, checks it and mounts it again. It fails while files on it are open.
func (v *volume) repair(ctx context.Context) error {
	if v.mounted {
		if _, err := run(ctx, "umount", v.at); err != nil {
			return err
		}
		v.mounted = false
	}
	var exit *exec.ExitError
	if _, err := run(ctx, "fsck.ext4", "-f", "-y", v.device); err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 2) {
		return err
	}
	return v.mount(ctx)
}

// remove takes everything away that create and thin made, whatever else failed.
func (v *volume) remove(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	errs := []error{v.unmount(ctx)}
	if v.device != "" {
		_, err := run(ctx, "losetup", "--detach", v.device) // at the last close, when files are open still
		errs, v.device = append(errs, err), ""
	}
	if v.backing != "" {
		_, err := run(ctx, "umount", "--lazy", v.backing)
		errs, v.backing = append(errs, err), ""
	}
	return errors.Join(errs...)
}

// fill writes a file until so many bytes are free; 0 until nothing more fits.
func (v *volume) fill(free int64) (path string, err error) {
	path = filepath.Join(v.at, "somebody-elses-file")
	f, err := os.Create(path)
	if err != nil {
		return path, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	piece := make([]byte, 1<<20)
	for i := range piece {
		piece[i] = byte(i * 31)
	}
	for {
		var st syscall.Statfs_t
		if err := syscall.Statfs(v.at, &st); err != nil {
			return path, err
		}
		left := int64(st.Bavail)*st.Bsize - free
		if left <= 0 {
			return path, f.Sync()
		}
		switch _, err := f.Write(piece[:min(left, int64(len(piece)))]); {
		case errors.Is(err, syscall.ENOSPC):
			return path, f.Sync()
		case err != nil:
			return path, err
		}
	}
}
