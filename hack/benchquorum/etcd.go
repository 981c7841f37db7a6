package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/test/nodes"
)

// etcd is a cluster of three members.
type etcd struct {
	version string
	members []*procs.Process
	urls    []string // for clients, of each member
	leader  int
}

// startEtcd starts three members with etcd's defaults, which sync the log before anything is answered.
func startEtcd(ctx context.Context, path, dir string) (e *etcd, err error) {
	e = &etcd{}
	printed, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	first, _, _ := strings.Cut(string(printed), "\n")
	e.version = strings.TrimPrefix(strings.ToLower(first), "etcd version: ")
	addresses := nodes.NewAddresses()
	var peers, cluster []string
	for i := range 3 {
		client, err1 := addresses.Free()
		peer, err2 := addresses.Free()
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		e.urls, peers = append(e.urls, "http://"+client), append(peers, "http://"+peer)
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peer))
	}
	for i := range 3 {
		if err := e.startMember(path, filepath.Join(dir, fmt.Sprintf("etcd-%d", i)), i, peers[i], strings.Join(cluster, ",")); err != nil {
			e.stop()
			return nil, err
		}
	}
	if err := nodes.Eventually(ctx, "etcd has a leader", time.Minute, e.findLeader); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

func (e *etcd) startMember(path, dir string, i int, peer, cluster string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := procs.Start(procs.Spec{
		Path: path, Env: os.Environ(), Stdout: log, Stderr: log, PidFile: filepath.Join(dir, "etcd"+procs.Suffix),
		Args: []string{
			fmt.Sprintf("--name=m%d", i), "--data-dir=" + filepath.Join(dir, "data"), "--log-level=warn",
			"--listen-client-urls=" + e.urls[i], "--advertise-client-urls=" + e.urls[i],
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + cluster,
		},
	})
	if err == nil {
		e.members = append(e.members, p)
	}
	return err
}

// findLeader asks each member whether it leads, by its gateway for JSON.
func (e *etcd) findLeader(ctx context.Context) error {
	for i, url := range e.urls {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/maintenance/status", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		var status struct {
			Header struct {
				MemberID string `json:"member_id"`
			} `json:"header"`
			Leader string `json:"leader"`
		}
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if status.Leader != "" && status.Leader == status.Header.MemberID {
			e.leader = i
			return nil
		}
	}
	return errors.New("no member leads")
}

func (e *etcd) stop() {
	for _, p := range e.members {
		p.Stop(10 * time.Second)
	}
}
