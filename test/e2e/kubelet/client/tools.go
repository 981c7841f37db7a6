package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stop tells the pod's first process, a load, to end.
func stop(context.Context, []string) error { return syscall.Kill(1, syscall.SIGTERM) }

// resolve prints the addresses of each name on a line of its own, in order, separated by spaces.
func resolve(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, name := range names {
		addresses, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return err
		}
		slices.Sort(addresses)
		fmt.Println(strings.Join(addresses, " "))
	}
	return nil
}

// get prints the status code of a URL on a line, then the body.
func get(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("get: want one URL")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	fmt.Printf("%d\n%s", response.StatusCode, body)
	return nil
}

// stat prints who a folder belongs to and its mode: uid gid mode setgid.
func stat(_ context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("stat: want one folder")
	}
	info, err := os.Stat(args[0])
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("stat: this system does not say who owns a file")
	}
	fmt.Printf("%d %d %04o %t\n", owner.Uid, owner.Gid, info.Mode().Perm(), info.Mode()&fs.ModeSetgid != 0)
	return nil
}

// list prints every file below a folder, one a line.
func list(_ context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("list: want one folder")
	}
	return filepath.WalkDir(args[0], func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			fmt.Println(path)
		}
		return err
	})
}

// wipe removes all that is in a folder, but not the folder.
func wipe(_ context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("wipe: want one folder")
	}
	entries, err := os.ReadDir(args[0])
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(args[0], entry.Name())); err != nil {
			return err
		}
	}
	fmt.Printf("removed %d entries\n", len(entries))
	return nil
}
