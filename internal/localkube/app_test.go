package localkube

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// What the containers of these tests run: the test binary itself, called app.
//
//	app serve   an HTTP server on the address that the hosts file gives for listener HTTP
//	app wait    waits for its end
//	app exit N  ends with N after it has written a line and its termination message ($TERMINATION_LOG)
//	app is PATH TEXT  ends with 0 when the file holds the text
func app(args []string) int {
	switch args[0] {
	case "serve":
		return serveApp()
	case "wait":
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1)
		<-never
		return 0
	case "exit":
		fmt.Println("leaving with", args[1])
		if name := os.Getenv("TERMINATION_LOG"); name != "" {
			_ = os.WriteFile(name, []byte("left with "+args[1]), 0o644)
		}
		code, _ := strconv.Atoi(args[1])
		return code
	case "is":
		data, err := os.ReadFile(args[1])
		if err == nil && string(data) == args[2] {
			return 0
		}
		fmt.Printf("%q, %v\n", data, err)
		return 1
	}
	return 2
}

// hosts reads the lines of the hosts file that begin with a word.
func hostsLine(first ...string) (string, bool) {
	f, err := os.Open(os.Getenv("HIGHWATER_HOSTS_FILE"))
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == len(first)+1 && strings.Join(fields[:len(first)], " ") == strings.Join(first, " ") {
			return fields[len(first)], true
		}
	}
	return "", false
}

func serveApp() int {
	addr, ok := hostsLine("listen", "HTTP")
	if !ok {
		fmt.Fprintln(os.Stderr, "no listen line for HTTP")
		return 3
	}
	var unready, unwell, stubborn atomic.Bool
	exit := make(chan int, 1)
	health := func(bad *atomic.Bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if bad.Load() {
				http.Error(w, "told so", http.StatusServiceUnavailable)
			}
		}
	}
	set := func(b *atomic.Bool) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { b.Store(r.FormValue("to") == "true") }
	}
	http.HandleFunc("/readyz", health(&unready))
	http.HandleFunc("/livez", health(&unwell))
	http.HandleFunc("/unready", set(&unready))
	http.HandleFunc("/unwell", set(&unwell))
	http.HandleFunc("/stubborn", set(&stubborn))
	http.HandleFunc("/exit", func(_ http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.FormValue("code"))
		exit <- code
	})
	http.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, os.Getenv(r.FormValue("name"))) })
	http.HandleFunc("/args", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Join(os.Args[1:], " ")) })
	http.HandleFunc("/say", func(_ http.ResponseWriter, r *http.Request) { fmt.Println(r.FormValue("text")) })
	http.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(r.FormValue("path"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = w.Write(data)
	})
	http.HandleFunc("/write", func(w http.ResponseWriter, r *http.Request) {
		if err := os.WriteFile(r.FormValue("path"), []byte(r.FormValue("text")), 0o644); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	// Asks another pod, by its DNS name, as a peer would.
	http.HandleFunc("/ask", func(w http.ResponseWriter, r *http.Request) {
		target, ok := hostsLine(r.FormValue("host"))
		if !ok {
			http.Error(w, "no such host", http.StatusNotFound)
			return
		}
		client := http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + target + "/readyz")
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			fmt.Fprint(w, "timeout")
		case err != nil:
			fmt.Fprint(w, "error: ", err)
		default:
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			fmt.Fprint(w, "answer")
		}
	})
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	fmt.Println("serving on", addr)
	go func() { _ = http.Serve(l, nil) }()
	for {
		select {
		case code := <-exit:
			return code
		case <-terminated:
			if !stubborn.Load() {
				fmt.Println("terminated")
				return 0
			}
		}
	}
}
