// Mkpicture draws the picture that the heat example starts from when it is given none.
//
//	go run ./internal/mkpicture -o start.png
package main

import (
	"flag"
	"image"
	"image/color"
	"image/png"
	"log"
	"math"
	"os"
)

const width, height = 192, 128

// A stroke is a straight line with round ends; a line without length is a disc.
type stroke struct{ x1, y1, x2, y2, radius, heat float64 }

// The letters nd over a row of embers and between two suns.
var strokes = []stroke{
	{34, 44, 34, 92, 6, 1}, {34, 60, 46, 47, 6, 1}, {46, 47, 62, 47, 6, 1}, // n
	{62, 47, 70, 58, 6, 1}, {70, 58, 70, 92, 6, 1},
	{148, 20, 148, 92, 6, 1}, {148, 50, 124, 47, 6, 0.9}, {124, 47, 112, 60, 6, 0.9}, // d
	{112, 60, 112, 80, 6, 0.9}, {112, 80, 124, 92, 6, 0.9}, {124, 92, 148, 89, 6, 0.9},
	{172, 26, 172, 26, 9, 0.7}, {90, 24, 90, 24, 13, 0.8},
	{20, 112, 20, 112, 4, 0.5}, {58, 114, 58, 114, 5, 0.6}, {96, 112, 96, 112, 4, 0.5},
	{134, 114, 134, 114, 5, 0.6}, {172, 112, 172, 112, 4, 0.5},
}

// distance returns how far (x, y) is from the stroke's edge; it is negative inside.
func (s stroke) distance(x, y float64) float64 {
	dx, dy := s.x2-s.x1, s.y2-s.y1
	along := 0.0
	if length := dx*dx + dy*dy; length > 0 {
		along = min(max(((x-s.x1)*dx+(y-s.y1)*dy)/length, 0), 1)
	}
	return math.Hypot(x-s.x1-along*dx, y-s.y1-along*dy) - s.radius
}

func draw() *image.Gray {
	img := image.NewGray(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			heat := 0.06
			for _, s := range strokes {
				cover := min(max(0.5-s.distance(float64(x), float64(y)), 0), 1)
				heat = max(heat, cover*s.heat)
			}
			img.SetGray(x, y, color.Gray{Y: uint8(math.Round(255 * heat))})
		}
	}
	return img
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mkpicture: ")
	name := flag.String("o", "start.png", "file to write")
	flag.Parse()
	file, err := os.Create(*name)
	if err == nil {
		err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(file, draw())
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
}
