package report_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/softnd/softnd/bench/report"
)

func TestReadingGivesWhatWasWritten(t *testing.T) {
	var text bytes.Buffer
	if err := sample().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	back, err := report.ReadJSON(&text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, sample()) {
		t.Errorf("got %+v", back)
	}
}
