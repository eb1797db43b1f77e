package peers

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestScratch(t *testing.T) {
	d, _ := time.ParseDuration(os.Getenv("D"))
	for _, p := range Installed() {
		if w := os.Getenv("P"); w != "" && w != p.Name {
			continue
		}
		began := time.Now()
		o := Options{Duration: d, Repeats: 3, Pinned: true}
		o, _ = o.withDefaults()
		res, err := Run(t.Context(), p, o)
		for _, r := range res {
			fmt.Printf("%-9s %-9s %8d %2d %14.1f %s (%v..%v) n=%d %s\n", r.Provider, r.Test, r.Size, r.Ranks, r.Value, r.Unit, r.Low, r.High, r.Iterations, r.Note)
		}
		fmt.Println(p.Name, "ERR", err, time.Since(began))
	}
}
