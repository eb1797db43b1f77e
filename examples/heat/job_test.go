package main

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/scale"
)

// launch returns a function that runs the program as a job of that many ranks, and returns what
// it printed and whether it exited with 0.
func launch(t *testing.T) func(ranks int, env string, args ...string) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, ".", "../../cmd/ndrun")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return func(ranks int, env string, args ...string) (string, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		args = append([]string{"-n", strconv.Itoa(ranks), filepath.Join(dir, "heat")}, args...)
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "ndrun"), args...)
		cmd.Env = append(os.Environ(), env)
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			t.Errorf("%v %s did not end:\n%s", args, env, out)
		}
		return string(out), err == nil
	}
}

func TestJob(t *testing.T) {
	run := launch(t)
	const identical = "heat: identical to the serial result"
	for _, executor := range []string{"auto", "target"} {
		for _, ranks := range []int{1, 2, 4, 8} {
			out, ok := run(ranks, "SOFTND_EXEC="+executor, "-steps", "60", "-verify")
			if !ok || !strings.Contains(out, identical) || !strings.Contains(out, "heat: 192x128, "+strconv.Itoa(ranks)+" rank") {
				t.Errorf("%d ranks, %s: %v\n%s", ranks, executor, ok, out)
			}
		}
	}

	t.Run("weak order", func(t *testing.T) {
		for seed := range scale.Of(2, 100) {
			for _, executor := range []string{"auto", "target"} {
				t.Setenv("SOFTND_EXEC", executor)
				if out, ok := run(4, "SOFTND_WEAK_ORDER="+strconv.Itoa(seed), "-steps", "10", "-verify"); !ok || !strings.Contains(out, identical) {
					t.Errorf("seed %d, %s: %v\n%s", seed, executor, ok, out)
				}
			}
		}
	})

	t.Run("thin", func(t *testing.T) { // a row per rank, and nothing that changes
		name := filepath.Join(t.TempDir(), "thin.png")
		if err := os.WriteFile(name, encodePNG(t, image.NewGray(image.Rect(0, 0, 1, 5))), 0o666); err != nil {
			t.Fatal(err)
		}
		if out, ok := run(5, "", "-in", name, "-steps", "9", "-verify"); !ok || !strings.Contains(out, identical) {
			t.Errorf("%v\n%s", ok, out)
		}
	})

	t.Run("result", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "out.png")
		if out, ok := run(3, "", "-steps", "0", "-out", name); !ok {
			t.Fatalf("%s", out)
		}
		encoded, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(encoded))
		if err != nil || img.Bounds().Dx() != 192 || img.Bounds().Dy() != 128 {
			t.Fatalf("%v, %v", err, img)
		}
		start, err := readPicture(bytes.NewReader(startPicture))
		if err != nil {
			t.Fatal(err)
		}
		cells := make([]float64, 192*128)
		start.temperatures(cells)
		for i, degrees := range cells {
			if got := img.At(i%192, i/192); got != heatColour(degrees) {
				t.Fatalf("cell %d has %v degrees and the colour %v", i, degrees, got)
			}
		}
	})
}

// Each mistake is reported once, whatever the number of ranks, and fails the job.
func TestJobReportsMistakes(t *testing.T) {
	run := launch(t)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	small := write("small.png", encodePNG(t, image.NewGray(image.Rect(0, 0, 8, 3))))
	for _, tc := range []struct{ args, want string }{
		{"-steps -4", "heat: -steps -4: want 0 or more"},
		{"-sreps 4", "-h lists the flags"},
		{"-in " + filepath.Join(dir, "none.png"), "none.png: no such file or directory"},
		{"-in " + write("text.png", []byte("hello")), "text.png: not a PNG or JPEG picture"},
		{"-in " + write("huge.png", pngHeader(1<<20, 1<<20)), "huge.png: 1048576x1048576 is too large"},
		{"-in " + small, "small.png: 8x3 has 3 rows, too few for 4 ranks"},
		{"-out " + filepath.Join(dir, "none", "x.png"), "x.png: no such file or directory"},
	} {
		out, ok := run(4, "", strings.Fields(tc.args)...)
		if ok || strings.Count(out, tc.want) != 1 || len(regexp.MustCompile(`(?m)^\[\d\] `).FindAllString(out, -1)) != 1 {
			t.Errorf("%s: exit 0 is %v, and the output should say %q once:\n%s", tc.args, ok, tc.want, out)
		}
	}
}
