package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // pictures to start from may be JPEG
	"image/png"
	"io"
	"math"
	"os"
)

const (
	hottest  = 100.0    // degrees, of white
	maxCells = 64 << 20 // half a gigabyte of temperatures
)

// size is the extent of a picture, and of the grid made from it.
type size struct{ Width, Height int }

// extent is a size as ranks exchange it.
type extent struct{ Width, Height uint64 }

func (s size) extent() extent { return extent{uint64(s.Width), uint64(s.Height)} }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.Width, s.Height) }

// picture is what a run starts from.
type picture struct{ img image.Image }

// openPicture reads the picture in a file, or the program's own if name is empty. It refuses a
// picture that cannot be divided among that many ranks.
func openPicture(name string, ranks int) (*picture, error) {
	var from io.Reader = bytes.NewReader(startPicture)
	label := "the program's own picture"
	if name != "" {
		label = "-in " + name
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", label, withoutPath(err))
		}
		defer file.Close()
		from = file
	}
	pic, err := readPicture(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	if s := pic.size(); s.Height < ranks {
		return nil, fmt.Errorf("%s: %v has %d rows, too few for %d ranks, each of which needs one", label, s, s.Height, ranks)
	}
	return pic, nil
}

// readPicture reads a PNG or JPEG picture. It checks the size before it reads the rest.
func readPicture(r io.Reader) (*picture, error) {
	in := bufio.NewReader(r)
	switch _, err := in.Peek(1); {
	case err == io.EOF:
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, withoutPath(err)
	}
	var head bytes.Buffer
	config, _, err := image.DecodeConfig(io.TeeReader(in, &head))
	if err != nil {
		return nil, unreadable(err)
	}
	if err := checkSize(size{config.Width, config.Height}); err != nil {
		return nil, err
	}
	img, _, err := image.Decode(io.MultiReader(&head, in))
	if err != nil {
		return nil, unreadable(err)
	}
	return &picture{img}, nil
}

func checkSize(s size) error {
	switch {
	case s.Width < 1 || s.Height < 1:
		return fmt.Errorf("the picture is empty (%v)", s)
	case int64(s.Width)*int64(s.Height) > maxCells:
		return fmt.Errorf("%v is too large: %d cells, and the limit is %d", s, int64(s.Width)*int64(s.Height), maxCells)
	}
	return nil
}

// unreadable says what a decoder's error means to the owner of the file.
func unreadable(err error) error {
	var file *os.PathError
	switch {
	case errors.As(err, &file):
		return file.Err
	case errors.Is(err, image.ErrFormat):
		return errors.New("not a PNG or JPEG picture")
	}
	return fmt.Errorf("the picture is damaged or incomplete: %w", err)
}

// withoutPath returns what is wrong with a file whose name has been said already.
func withoutPath(err error) error {
	var file *os.PathError
	if errors.As(err, &file) {
		return file.Err
	}
	return err
}

// size returns the extent, nothing for no picture.
func (p *picture) size() size {
	if p == nil {
		return size{}
	}
	return size{p.img.Bounds().Dx(), p.img.Bounds().Dy()}
}

// temperatures fills cells, row by row. The brightness of a colour is that of its 16-bit grey,
// with all the depth that the picture has, in front of a black wall.
func (p *picture) temperatures(cells []float64) {
	box := p.img.Bounds()
	deep, isDeep := p.img.(image.RGBA64Image) // which spares an allocation per pixel
	i := 0
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			if isDeep {
				cells[i] = temperature(deep.RGBA64At(x, y))
			} else {
				cells[i] = temperature(color.RGBA64Model.Convert(p.img.At(x, y)).(color.RGBA64))
			}
			i++
		}
	}
}

// temperature weighs the colours as image/color does for its 16-bit grey.
func temperature(c color.RGBA64) float64 {
	grey := (19595*uint32(c.R) + 38470*uint32(c.G) + 7471*uint32(c.B) + 1<<15) >> 16
	return hottest * float64(grey) / 65535
}

// heatColour paints a temperature as glowing iron looks: from black through red and yellow to
// white.
func heatColour(degrees float64) color.RGBA {
	t := 3 * min(max(degrees/hottest, 0), 1)
	glow := func(t float64) uint8 { return uint8(math.Round(255 * min(max(t, 0), 1))) }
	return color.RGBA{glow(t), glow(t - 1), glow(t - 2), 255}
}

// output is the file for the result. It is opened before the computation, so that an error is
// reported at once. Its contents stay until there is a result. A nil output is none.
type output struct {
	file    *os.File
	created bool // by this run, which removes it if it fails
	written bool
}

func createOutput(name string) (*output, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	created := err == nil
	if errors.Is(err, os.ErrExist) {
		file, err = os.OpenFile(name, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("-out %s: %w", name, withoutPath(err))
	}
	return &output{file: file, created: created}, nil
}

// write stores the temperatures as a PNG in the colours of heat.
func (o *output) write(cells []float64, s size) error {
	if o == nil {
		return nil
	}
	img := image.NewRGBA(image.Rect(0, 0, s.Width, s.Height))
	for i, degrees := range cells {
		img.SetRGBA(i%s.Width, i/s.Width, heatColour(degrees))
	}
	var encoded bytes.Buffer
	err := png.Encode(&encoded, img)
	if info, statErr := o.file.Stat(); err == nil && statErr == nil && info.Mode().IsRegular() {
		err = o.file.Truncate(0)
	}
	if err == nil {
		_, err = o.file.Write(encoded.Bytes())
	}
	if err == nil {
		err = o.file.Close()
	}
	if err != nil {
		return fmt.Errorf("-out %s: %w", o.file.Name(), withoutPath(err))
	}
	o.written = true
	return nil
}

// discard closes the file and removes it if it is of no use. It does nothing after write.
func (o *output) discard() {
	if o == nil || o.written {
		return
	}
	o.file.Close()
	if o.created {
		os.Remove(o.file.Name())
	}
}
