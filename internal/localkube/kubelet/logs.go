package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// maxLogBytes is where a container's log file begins anew; what it held until then is kept beside it until the
	// next time.
	maxLogBytes = 64 << 20
	maxLogLine  = 16 << 10 // longer lines are split, as container runtimes do
	rotated     = ".old"
)

// logWriter writes a container's output as container runtimes do: time, stream, F for a full line or P for a part
// of one, and the text.
type logWriter struct {
	mu   sync.Mutex
	file *os.File
	size int64
}

func openLog(name string) (*logWriter, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &logWriter{file: f}, nil
}

func (l *logWriter) line(stream string, text []byte) {
	tag := "P"
	if n := len(text); n > 0 && text[n-1] == '\n' {
		tag, text = "F", text[:n-1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > maxLogBytes {
		l.rotate()
	}
	n, _ := fmt.Fprintf(l.file, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, tag, text)
	l.size += int64(n)
}

func (l *logWriter) rotate() {
	name := l.file.Name()
	if os.Rename(name, name+rotated) != nil {
		return
	}
	if f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err == nil {
		l.file.Close()
		l.file, l.size = f, 0
	}
}

// copy reads one of the container's streams until its end.
func (l *logWriter) copy(stream string, r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLogLine)
	for {
		text, err := lines.ReadSlice('\n')
		if len(text) > 0 {
			l.line(stream, text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *logWriter) close() { l.file.Close() }

// LogOptions say what of a log is wanted; they are those of kubectl logs.
type LogOptions struct {
	Follow     bool
	Tail       int64 // -1 for all
	Since      time.Time
	Timestamps bool
	LimitBytes int64 // 0 for all
	Stream     string
}

// readLog writes a log file's lines to out. Following ends when running is false and everything was written.
func readLog(ctx context.Context, out io.Writer, name string, o LogOptions, running func() bool) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { f.Close() }()
	if o.Tail >= 0 {
		if err := seekTail(f, o.Tail); err != nil {
			return err
		}
	}
	written := int64(0)
	lines := bufio.NewReader(f)
	var part []byte
	for {
		text, err := lines.ReadBytes('\n')
		part = append(part, text...)
		if err == nil {
			rest := o.format(part)
			part = part[:0]
			if o.LimitBytes > 0 {
				rest = rest[:min(int64(len(rest)), o.LimitBytes-written)]
			}
			if _, err := out.Write(rest); err != nil {
				return err
			}
			if written += int64(len(rest)); o.LimitBytes > 0 && written >= o.LimitBytes {
				return nil
			}
			continue
		}
		if err != io.EOF {
			return err
		}
		if !o.Follow {
			return nil
		}
		if flusher, ok := out.(interface{ Flush() }); ok {
			flusher.Flush()
		}
		stillRunning := running()
		if next, ok := successor(f, name); ok {
			f.Close()
			f, lines, part = next, bufio.NewReader(next), part[:0]
			continue
		}
		if !stillRunning && lines.Buffered() == 0 {
			o.Follow = false // read once more: the last lines may have come after the last read
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// successor returns the file that took f's name when the log was rotated.
func successor(f *os.File, name string) (*os.File, bool) {
	have, err := f.Stat()
	if err != nil {
		return nil, false
	}
	if now, err := os.Stat(name); err != nil || os.SameFile(have, now) {
		return nil, false
	}
	next, err := os.Open(name)
	return next, err == nil
}

// format returns what is shown of a line, nil when it is not wanted.
func (o LogOptions) format(line []byte) []byte {
	stamp, rest, ok := bytes.Cut(line, []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tag, text, ok3 := bytes.Cut(rest, []byte(" "))
	if !ok || !ok2 || !ok3 || o.Stream != "" && string(stream) != o.Stream {
		return nil
	}
	if !o.Since.IsZero() {
		if at, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil && at.Before(o.Since) {
			return nil
		}
	}
	if string(tag) == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if o.Timestamps {
		return append(append(append([]byte{}, stamp...), ' '), text...)
	}
	return text
}

// seekTail moves f to the start of its last n lines.
func seekTail(f *os.File, n int64) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return err
	}
	buffer := make([]byte, 32<<10)
	for at := end; at > 0; {
		size := min(at, int64(len(buffer)))
		at -= size
		if _, err := f.ReadAt(buffer[:size], at); err != nil {
			return err
		}
		for i := size - 1; i >= 0; i-- {
			if buffer[i] == '\n' && at+i+1 != end {
				if n--; n == 0 {
					_, err := f.Seek(at+i+1, io.SeekStart)
					return err
				}
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// lastLines returns the end of a log, for termination messages taken from it.
func lastLines(name string, lines int64, maxBytes int) string {
	var out strings.Builder
	err := readLog(context.Background(), &out, name, LogOptions{Tail: lines}, func() bool { return false })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	text := out.String()
	return text[max(0, len(text)-maxBytes):]
}
