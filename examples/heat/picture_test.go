package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func encodePNG(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodeJPEG(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 100}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type canvas interface {
	image.Image
	Set(x, y int, c color.Color)
}

// one returns a picture with one pixel.
func one(kind func(image.Rectangle) canvas, c color.Color) image.Image {
	img := kind(image.Rect(0, 0, 1, 1))
	img.Set(0, 0, c)
	return img
}

// Every colour model that the encoder writes comes back as the temperature that it should.
func TestTemperatureOfColours(t *testing.T) {
	gray := func(r image.Rectangle) canvas { return image.NewGray(r) }
	gray16 := func(r image.Rectangle) canvas { return image.NewGray16(r) }
	rgba := func(r image.Rectangle) canvas { return image.NewRGBA(r) }
	nrgba := func(r image.Rectangle) canvas { return image.NewNRGBA(r) }
	nrgba64 := func(r image.Rectangle) canvas { return image.NewNRGBA64(r) }
	paletted := func(r image.Rectangle) canvas {
		return image.NewPaletted(r, color.Palette{color.Black, color.White, color.NRGBA{255, 255, 255, 51}, color.RGBA{0, 255, 0, 255}})
	}
	for _, tc := range []struct {
		name string
		kind func(image.Rectangle) canvas
		c    color.Color
		want float64
	}{
		{"8-bit black", gray, color.Gray{0}, 0},
		{"8-bit white", gray, color.Gray{255}, 100},
		{"8-bit grey", gray, color.Gray{51}, 20},
		{"16-bit darkest", gray16, color.Gray16{1}, 100.0 / 65535},
		{"16-bit grey", gray16, color.Gray16{0x1234}, 100.0 * 0x1234 / 65535},
		{"16-bit white", gray16, color.Gray16{0xffff}, 100},
		{"red", rgba, color.RGBA{255, 0, 0, 255}, 29.9},
		{"green", rgba, color.RGBA{0, 255, 0, 255}, 58.7},
		{"blue", rgba, color.RGBA{0, 0, 255, 255}, 11.4},
		{"transparent white", nrgba, color.NRGBA{255, 255, 255, 0}, 0},
		{"white at two fifths", nrgba, color.NRGBA{255, 255, 255, 102}, 40},
		{"16-bit white at half", nrgba64, color.NRGBA64{0xffff, 0xffff, 0xffff, 0x8000}, 100.0 * 0x8000 / 65535},
		{"palette white", paletted, color.White, 100},
		{"palette veil", paletted, color.NRGBA{255, 255, 255, 51}, 20},
		{"palette green", paletted, color.RGBA{0, 255, 0, 255}, 58.7},
	} {
		pic, err := readPicture(bytes.NewReader(encodePNG(t, one(tc.kind, tc.c))))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		got := []float64{-1}
		pic.temperatures(got)
		if math.Abs(got[0]-tc.want) > 0.01 {
			t.Errorf("%s: %v degrees, want %v", tc.name, got[0], tc.want)
		}
		if strings.HasPrefix(tc.name, "16-bit") && math.Abs(got[0]-tc.want) > 1e-9 {
			t.Errorf("%s: %v degrees has lost depth, want %v", tc.name, got[0], tc.want)
		}
	}
}

// Pictures in any model of image, whatever their origin, agree with image/color's grey.
func TestTemperaturesAgreeWithGray16(t *testing.T) {
	box := image.Rect(-3, 7, 4, 12)
	ycc := image.NewYCbCr(box, image.YCbCrSubsampleRatio420)
	cmyk := image.NewCMYK(box)
	for i := range ycc.Y {
		ycc.Y[i] = uint8(37 * i)
	}
	for i := range ycc.Cb {
		ycc.Cb[i], ycc.Cr[i] = uint8(91*i), uint8(53*i)
	}
	for i := range cmyk.Pix {
		cmyk.Pix[i] = uint8(29 * i)
	}
	for _, img := range []image.Image{ycc, cmyk, plain{ycc}} {
		cells := make([]float64, box.Dx()*box.Dy())
		(&picture{img}).temperatures(cells)
		for i, got := range cells {
			grey := color.Gray16Model.Convert(img.At(box.Min.X+i%box.Dx(), box.Min.Y+i/box.Dx())).(color.Gray16)
			if want := hottest * float64(grey.Y) / 65535; got != want {
				t.Errorf("%T: cell %d has %v degrees, want %v", img, i, got, want)
			}
		}
	}
}

// plain hides all methods but the three that every image has.
type plain struct{ image.Image }

func TestReadJPEG(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 24, 16))
	for i := range img.Pix {
		img.Pix[i] = 102
	}
	pic, err := readPicture(bytes.NewReader(encodeJPEG(t, img)))
	if err != nil {
		t.Fatal(err)
	}
	cells := make([]float64, 24*16)
	pic.temperatures(cells)
	if pic.size() != (size{24, 16}) || math.Abs(cells[100]-40) > 0.5 {
		t.Errorf("%v, %v degrees", pic.size(), cells[100])
	}
}

func TestBadPictures(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 40, 30))
	for i := range img.Pix {
		img.Pix[i] = uint8(i * i)
	}
	goodPNG, goodJPEG := encodePNG(t, img), encodeJPEG(t, img)
	damaged := bytes.Clone(goodPNG)
	damaged[len(damaged)/2] ^= 0xff
	for _, tc := range []struct {
		name, want string
		data       []byte
	}{
		{"empty", "the file is empty", nil},
		{"text", "not a PNG or JPEG picture", []byte("temperature,0,100\n")},
		{"gif", "not a PNG or JPEG picture", []byte("GIF89a\x01\x00\x01\x00\x00\x00\x00;")},
		{"short png", "the picture is damaged or incomplete", goodPNG[:len(goodPNG)/2]},
		{"head of a png", "the picture is damaged or incomplete", goodPNG[:20]},
		{"short jpeg", "the picture is damaged or incomplete", goodJPEG[:len(goodJPEG)/2]},
		{"head of a jpeg", "the picture is damaged or incomplete", goodJPEG[:20]},
		{"damaged png", "the picture is damaged or incomplete", damaged},
		{"huge", "100000x1000 is too large: 100000000 cells, and the limit is 67108864", pngHeader(100000, 1000)},
		{"endless", "is too large", pngHeader(65536, 65536)},
		{"no rows", "the picture is damaged or incomplete", pngHeader(7, 0)},
	} {
		_, err := readPicture(bytes.NewReader(tc.data))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.want)
		}
	}
}

// pngHeader returns the beginning of a picture of any size.
func pngHeader(width, height uint32) []byte {
	chunk := binary.BigEndian.AppendUint32([]byte("IHDR"), width)
	chunk = binary.BigEndian.AppendUint32(chunk, height)
	chunk = append(chunk, 8, 0, 0, 0, 0) // 8-bit grey
	b := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	b = append(b, chunk...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(chunk))
}

func TestOpenPicture(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small.png")
	if err := os.WriteFile(small, encodePNG(t, image.NewGray(image.Rect(0, 0, 9, 3))), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, want string
		ranks      int
	}{
		{small, "", 3},
		{"", "", 64},
		{small, "small.png: 9x3 has 3 rows, too few for 4 ranks", 4},
		{filepath.Join(dir, "none.png"), "none.png: no such file", 1},
		{dir, "is a directory", 1},
	} {
		_, err := openPicture(tc.name, tc.ranks)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%q for %d ranks: error %v, want %q", tc.name, tc.ranks, err, tc.want)
		}
	}
}

func TestHeatColour(t *testing.T) {
	for degrees, want := range map[float64]color.RGBA{
		-5:                    {0, 0, 0, 255},
		0:                     {0, 0, 0, 255},
		100.0 / 3:             {255, 0, 0, 255},
		50:                    {255, 128, 0, 255},
		math.Nextafter(67, 0): {255, 255, 3, 255},
		100:                   {255, 255, 255, 255},
		1000:                  {255, 255, 255, 255},
	} {
		if got := heatColour(degrees); got != want {
			t.Errorf("%v degrees: %v, want %v", degrees, got, want)
		}
	}
}

func TestOutput(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out.png")

	out, err := createOutput(name)
	if err != nil {
		t.Fatal(err)
	}
	out.discard()
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("an output without a result was left behind: %v", err)
	}

	if err := os.WriteFile(name, bytes.Repeat([]byte("old"), 1000), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err = createOutput(name); err != nil {
		t.Fatal(err)
	}
	out.discard()
	if b, _ := os.ReadFile(name); len(b) != 3000 {
		t.Errorf("a run without a result has changed the old file: %d bytes", len(b))
	}

	if out, err = createOutput(name); err != nil {
		t.Fatal(err)
	}
	if err := out.write([]float64{0, 100.0 / 3, 200.0 / 3, 100, 0, 0}, size{3, 2}); err != nil {
		t.Fatal(err)
	}
	out.discard()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	img, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds() != image.Rect(0, 0, 3, 2) || img.At(1, 0) != (color.RGBA{255, 0, 0, 255}) || img.At(0, 1) != (color.RGBA{255, 255, 255, 255}) {
		t.Errorf("%v, %v, %v", img.Bounds(), img.At(1, 0), img.At(0, 1))
	}

	if out, err = createOutput(os.DevNull); err != nil {
		t.Fatal(err)
	}
	if err := out.write([]float64{1}, size{1, 1}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "none", "out.png"), filepath.Join(name, "out.png")} {
		if _, err := createOutput(bad); err == nil || !strings.HasPrefix(err.Error(), "-out "+bad+": ") {
			t.Errorf("-out %s: %v", bad, err)
		}
	}
	if none, err := createOutput(""); none != nil || err != nil || none.write(nil, size{}) != nil {
		t.Error("no -out is not taken for none")
	}
}

// The picture in the tree is the one that its generator draws. Rounding may differ by one level
// from machine to machine.
func TestStartPicture(t *testing.T) {
	name := filepath.Join(t.TempDir(), "start.png")
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./internal/mkpicture", "-o", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	drawn, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	temperatures := func(encoded []byte) (size, []float64) {
		pic, err := readPicture(bytes.NewReader(encoded))
		if err != nil {
			t.Fatal(err)
		}
		cells := make([]float64, pic.size().Width*pic.size().Height)
		pic.temperatures(cells)
		return pic.size(), cells
	}
	wantSize, want := temperatures(drawn)
	gotSize, got := temperatures(startPicture)
	if gotSize != wantSize {
		t.Fatalf("start.png is %v, drawn is %v: run go generate", gotSize, wantSize)
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 0.5 {
			t.Fatalf("start.png has %v degrees at cell %d, drawn are %v: run go generate", got[i], i, want[i])
		}
	}
}
