// Command image makes a container image from files, without Docker and without a
// base: an archive that Docker, containerd, podman and kind load, and whose bytes
// depend on nothing but its input.
//
//	go run ./hack/image --name localhost/kraft-operator:dev --out dist/image.tar \
//		--user 65532:65532 --entrypoint /manager /manager=dist/manager /quorum=dist/quorum
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "image:", err)
		}
		os.Exit(1)
	}
}

// run makes the image that args ask for, as main's doc comment shows them.
func run(args []string) error {
	var i Image
	var out string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a mistake is one line, not a page of usage
	flags.Func("name", "a `NAME:TAG` of the image; several names are several flags", func(name string) error {
		if !strings.Contains(path.Base(name), ":") {
			return fmt.Errorf("%q has no tag", name)
		}
		i.Names = append(i.Names, name)
		return nil
	})
	flags.StringVar(&i.Architecture, "arch", runtime.GOARCH, "what the programs were built for, in Go's words")
	flags.StringVar(&i.User, "user", "", "`UID:GID` that the programs run as")
	flags.Func("entrypoint", "the `PROGRAM` that is started, an absolute path in the image", func(program string) error {
		i.Entrypoint = []string{program}
		return nil
	})
	flags.Func("label", "a `KEY=VALUE` of the image's configuration; several labels are several flags", func(label string) error {
		key, value, ok := strings.Cut(label, "=")
		if !ok {
			return fmt.Errorf("%q is not KEY=VALUE", label)
		}
		if i.Labels == nil {
			i.Labels = make(map[string]string)
		}
		i.Labels[key] = value
		return nil
	})
	flags.StringVar(&out, "out", "", "the archive to write")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(os.Stderr)
			flags.PrintDefaults()
		}
		return err
	}
	if len(i.Names) == 0 || out == "" || flags.NArg() == 0 {
		return errors.New("needs --name, --out and at least one /PATH=FILE")
	}
	for _, arg := range flags.Args() {
		name, file, ok := strings.Cut(arg, "=")
		if !ok || !path.IsAbs(name) {
			return fmt.Errorf("%q is not /PATH=FILE", arg)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		i.Files = append(i.Files, File{Path: name, Content: content})
	}
	created, err := sourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	i.Created = created

	digest, err := writeFile(out, &i)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, out, digest, strings.Join(i.Names, " "))
	return err
}

// sourceDate is the time that reproducible builds agree on: seconds since 1970,
// and 1970 itself when nobody said one (https://reproducible-builds.org/specs/source-date-epoch).
func sourceDate(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	var seconds int64
	if _, err := fmt.Sscanf(epoch, "%d", &seconds); err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q is not a number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// writeFile writes the archive beside its place and then moves it there, so that
// nobody loads half an image.
func writeFile(name string, i *Image) (digest string, err error) {
	f, err := os.CreateTemp(path.Dir(name), ".image-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if digest, err = i.Write(f); err != nil {
		return "", err
	}
	if err := f.Chmod(0o644); err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return digest, os.Rename(f.Name(), name)
}
