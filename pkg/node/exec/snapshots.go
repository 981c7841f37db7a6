package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// snapshotFiles are the snapshots beside a metadata log, the oldest first. The 0-0 checkpoint of a new cluster is not
// among them.
type snapshotFiles struct {
	fs    vfs.FS
	dir   string
	files []snapshotFile
	// What was served: bytes, and snapshots to their last byte.
	sentBytes, sent int64
	// serveRotten is raft.MutateServeRotten.
	serveRotten bool
}

type snapshotFile struct {
	id   metadata.SnapshotID
	size int64
	// timestampMs is when the last record in it was appended, in ms since 1970.
	timestampMs int64
	// sums are nil when its bytes were neither written nor read by this process: it is older than the one that was
	// loaded at the start. Such a one is served to nobody, since looking at all of it would hold up everything else.
	sums *blockSums
	// damaged: the file is not what it was. It still tells at which offset and in which epoch it ends.
	damaged bool
	// readers fetch it: when each asked for a piece last.
	readers []snapshotReader
}

type snapshotReader struct {
	replica raft.ReplicaKey
	asked   ident.Instant
}

// snapshotInUse is how long after its last piece a snapshot counts as being fetched by somebody who does not come back.
// While it does it is kept, and the log behind it, or a slow fetch would find at its end that it is behind again
// (consul#9609).
const snapshotInUse = ident.Instant(60e9)

// inUse says whether somebody fetches the snapshot.
func (f *snapshotFile) inUse(now ident.Instant) bool {
	return slices.ContainsFunc(f.readers, func(r snapshotReader) bool { return now < r.asked+snapshotInUse })
}

func (f *snapshotFile) readBy(replica raft.ReplicaKey, now ident.Instant) {
	f.readers = slices.DeleteFunc(f.readers, func(r snapshotReader) bool { return r.replica == replica || now >= r.asked+snapshotInUse })
	f.readers = append(f.readers, snapshotReader{replica, now})
}

// passed notes that a replica fetches the log from an offset, so that it has what snapshots up to there hold. Readers
// that are no replicas can't be told apart.
func (s *snapshotFiles) passed(replica raft.ReplicaKey, offset ident.Offset) {
	if replica.ID < 0 {
		return
	}
	for i := range s.files {
		if f := &s.files[i]; len(f.readers) > 0 && f.id.EndOffset <= offset {
			f.readers = slices.DeleteFunc(f.readers, func(r snapshotReader) bool { return r.replica == replica })
		}
	}
}

// Names of partial files. Both have Kafka's suffix, which it removes at a start as well.
const (
	fetchedPart = "-fetched" + metadata.PartialSnapshotSuffix
	writtenPart = "-written" + metadata.PartialSnapshotSuffix
)

// openSnapshots lists what is whole and removes what is not. A file that vanishes meanwhile is none (KAFKA-13098).
func openSnapshots(fsys vfs.FS, dir string) (*snapshotFiles, error) {
	s := &snapshotFiles{fs: fsys, dir: dir}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, metadata.PartialSnapshotSuffix) || strings.HasSuffix(name, metadata.DeletedSnapshotSuffix) {
			if err := s.removeFile(name); err != nil {
				return nil, err
			}
			continue
		}
		id, ok := metadata.ParseSnapshotName(name)
		if !ok || id.EndOffset == 0 {
			continue
		}
		info, err := fsys.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		file := snapshotFile{id: id, size: info.Size()}
		file.timestampMs, err = s.timestamp(id, file.size)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, file)
	}
	slices.SortFunc(s.files, func(a, b snapshotFile) int { return a.id.Compare(b.id) })
	return s, nil
}

// timestamp reads it from the first batch; 0 when that can't be read, which whoever loads the snapshot will say.
func (s *snapshotFiles) timestamp(id metadata.SnapshotID, size int64) (int64, error) {
	f, err := s.fs.OpenFile(filepath.Join(s.dir, id.FileName()), os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	head := make([]byte, min(size, batch.HeaderSize))
	if n, err := f.ReadAt(head, 0); n < len(head) {
		return 0, err
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return 0, nil //nolint:nilerr // see above
	}
	return h.MaxTimestamp, nil
}

func (s *snapshotFiles) removeFile(name string) error {
	if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func raftID(id metadata.SnapshotID) raft.SnapshotID {
	return raft.SnapshotID{End: id.EndOffset, Epoch: id.Epoch}
}

func fileID(id raft.SnapshotID) metadata.SnapshotID {
	return metadata.SnapshotID{EndOffset: id.End, Epoch: id.Epoch}
}

func (s *snapshotFiles) oldest() (metadata.SnapshotID, bool) {
	if len(s.files) == 0 {
		return metadata.SnapshotID{}, false
	}
	return s.files[0].id, true
}

func (s *snapshotFiles) latest() (metadata.SnapshotID, bool) {
	if len(s.files) == 0 {
		return metadata.SnapshotID{}, false
	}
	return s.files[len(s.files)-1].id, true
}

// whole says that it is known to be what it was when it was written, but for what the disk has done to it since.
func (f *snapshotFile) whole() bool { return f.sums != nil && !f.damaged }

// latestWhole is the latest that can be served.
func (s *snapshotFiles) latestWhole() (metadata.SnapshotID, bool) {
	for i := len(s.files) - 1; i >= 0; i-- {
		if s.files[i].whole() {
			return s.files[i].id, true
		}
	}
	return metadata.SnapshotID{}, false
}

func (s *snapshotFiles) hasDamaged(id metadata.SnapshotID) bool {
	return slices.ContainsFunc(s.files, func(f snapshotFile) bool { return f.id == id && f.damaged })
}

// add takes a file that is whole and durable.
func (s *snapshotFiles) add(id metadata.SnapshotID, sums *blockSums, timestampMs int64) {
	i, there := slices.BinarySearchFunc(s.files, id, func(f snapshotFile, id metadata.SnapshotID) int { return f.id.Compare(id) })
	if !there {
		s.files = slices.Insert(s.files, i, snapshotFile{})
	}
	s.files[i] = snapshotFile{id: id, size: sums.size, timestampMs: timestampMs, sums: sums}
}

// remove removes the files that gone says, the oldest first.
func (s *snapshotFiles) remove(gone func(snapshotFile) bool) error {
	for i := 0; i < len(s.files); {
		if !gone(s.files[i]) {
			i++
			continue
		}
		if err := s.removeFile(s.files[i].id.FileName()); err != nil {
			return err
		}
		s.files = slices.Delete(s.files, i, i+1)
	}
	return nil
}

// forget drops a file that is not there any more.
func (s *snapshotFiles) forget(id metadata.SnapshotID) {
	s.files = slices.DeleteFunc(s.files, func(f snapshotFile) bool { return f.id == id })
}

// load reads a whole snapshot and looks at all its checksums.
func (s *snapshotFiles) load(file *snapshotFile) (*metadata.Image, metadata.SnapshotHeader, error) {
	f, err := s.fs.OpenFile(filepath.Join(s.dir, file.id.FileName()), os.O_RDONLY, 0)
	if err != nil {
		return nil, metadata.SnapshotHeader{}, err
	}
	defer f.Close()
	r := metadata.NewSnapshotReader(file.id)
	sums := &blockSums{}
	buf := make([]byte, min(file.size, scanBytes))
	for at := int64(0); at < file.size; {
		n := int(min(file.size-at, int64(len(buf))))
		if got, err := f.ReadAt(buf[:n], at); got < n {
			return nil, metadata.SnapshotHeader{}, fmt.Errorf("read %s at %d: %w", f.Name(), at, err)
		}
		if err := r.Append(buf[:n]); err != nil {
			return nil, metadata.SnapshotHeader{}, err
		}
		_, _ = sums.Write(buf[:n]) // it takes everything
		at += int64(n)
	}
	image, header, err := r.Finish()
	if err == nil {
		file.sums = sums
	}
	return image, header, err
}

// serve fills the answer to a FetchSnapshot. With an error of errDamaged the file has turned out to be damaged, and the
// answer says so.
func (s *snapshotFiles) serve(now ident.Instant, r *raft.SnapshotRead) (err error) {
	resp := r.Response
	i := slices.IndexFunc(s.files, func(f snapshotFile) bool { return raftID(f.id) == resp.Snapshot })
	if i < 0 || !s.files[i].whole() {
		resp.Code = raft.SnapshotNotFound
		return nil
	}
	file := &s.files[i]
	resp.Size = file.size
	if resp.Position >= file.size {
		resp.Code = raft.PositionOutOfRange
		return nil
	}
	resp.Bytes, err = s.readChecked(file, resp.Position, int(min(int64(r.MaxBytes), file.size-resp.Position)))
	if errors.Is(err, errDamaged) {
		file.damaged = true
		resp.Code, resp.Bytes = raft.SnapshotNotFound, nil
	}
	if err != nil {
		return err
	}
	file.readBy(r.Replica, now)
	s.sentBytes += int64(len(resp.Bytes))
	if resp.Position+int64(len(resp.Bytes)) == file.size {
		s.sent++
	}
	return nil
}

// partial is a snapshot that is being fetched: its file, and the image as far as it is here. The bytes are checked as
// they come, so that the end of the download brings no long work.
type partial struct {
	id     raft.SnapshotID
	name   string
	file   vfs.File
	sums   *blockSums
	reader *metadata.SnapshotReader
}

// size is how much of it is here.
func (p *partial) size() int64 { return p.sums.size }

// begin starts the partial file anew.
func (s *snapshotFiles) begin(id raft.SnapshotID) (*partial, error) {
	name := fileID(id).String() + fetchedPart
	f, err := s.fs.OpenFile(filepath.Join(s.dir, name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &partial{id: id, name: name, file: f, sums: &blockSums{}, reader: metadata.NewSnapshotReader(fileID(id))}, nil
}

// drop closes and removes a partial file.
func (s *snapshotFiles) drop(p *partial) error {
	if err := p.file.Close(); err != nil {
		return err
	}
	return s.removeFile(p.name)
}

// finish makes a whole partial file a snapshot, durably. An error that wraps metadata.ErrSnapshot says that it is
// none; the file is removed then.
func (s *snapshotFiles) finish(p *partial) (*metadata.Image, metadata.SnapshotHeader, error) {
	image, header, err := p.reader.Finish()
	if err != nil {
		if derr := s.drop(p); derr != nil { // the disk's error counts for more
			err = derr
		}
		return nil, header, err
	}
	if err := s.publish(p.file, p.name, fileID(p.id)); err != nil {
		return nil, header, err
	}
	s.add(fileID(p.id), p.sums, header.LastContainedLogTimestamp)
	return image, header, nil
}

// publish closes a file that is whole and gives it its name, durably.
func (s *snapshotFiles) publish(f vfs.File, part string, id metadata.SnapshotID) error {
	err := f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := s.fs.Rename(filepath.Join(s.dir, part), filepath.Join(s.dir, id.FileName())); err != nil {
		return err
	}
	return s.fs.SyncDir(s.dir)
}
