package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/softnd/softnd/nd/ndcheck"
)

// The part of SARIF 2.1.0 that code hosts show.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		FullDescription  sarifText `json:"fullDescription"`
		Help             sarifText `json:"help"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID           string             `json:"ruleId"`
		Level            string             `json:"level"`
		Message          sarifText          `json:"message"`
		Locations        []sarifLocation    `json:"locations,omitempty"`
		RelatedLocations []sarifLocation    `json:"relatedLocations,omitempty"`
		Suppressions     []sarifSuppression `json:"suppressions,omitempty"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
	sarifLocation struct {
		Message  *sarifText `json:"message,omitempty"`
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region struct {
				StartLine int `json:"startLine"`
			} `json:"region"`
		} `json:"physicalLocation"`
	}
)

func sarifOf(found []ndcheck.Finding, lost int, unwatched []int) sarifLog {
	how := sarifInvocation{Successful: len(unwatched) == 0 && lost == 0}
	for _, rank := range unwatched {
		how.Notifications = append(how.Notifications, sarifNotification{"warning", sarifText{fmt.Sprintf("rank %d was not watched", rank)}})
	}
	if lost > 0 {
		how.Notifications = append(how.Notifications, sarifNotification{"warning", sarifText{fmt.Sprintf("%d findings or calls of nd.Expect did not fit into the report", lost)}})
	}
	run := sarifRun{Invocations: []sarifInvocation{how}, Results: []sarifResult{}}
	run.Tool.Driver.Name = "softnd"
	for _, r := range ndcheck.Rules() {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{r.ID, sarifText{r.Title}, sarifText{r.Why}, sarifText{r.Fix}})
	}
	for _, f := range found {
		result := sarifResult{RuleID: f.Rule.ID, Level: string(f.Rule.Severity), Message: sarifText{fmt.Sprintf("rank %d: %s", f.Rank, f.What)}}
		if at, ok := sarifLocationOf(f.Site, ""); ok {
			result.Locations = append(result.Locations, at)
		}
		if at, ok := sarifLocationOf(f.OtherSite, fmt.Sprintf("rank %d: %s", f.OtherRank, f.Other)); ok && f.Other != "" {
			result.RelatedLocations = append(result.RelatedLocations, at)
		}
		if f.Expected != nil {
			result.Suppressions = []sarifSuppression{{"inSource", f.Expected.Reason}}
		}
		run.Results = append(run.Results, result)
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// sarifLocationOf parses a site such as "cmd/grid/rank.go:42 (main.send)".
func sarifLocationOf(site, message string) (l sarifLocation, ok bool) {
	place, _, _ := strings.Cut(site, " ")
	file, line, found := strings.Cut(place, ":")
	n, err := strconv.Atoi(line)
	if !found || err != nil {
		return l, false
	}
	if message != "" {
		l.Message = &sarifText{message}
	}
	l.Physical.Artifact.URI, l.Physical.Region.StartLine = file, n
	return l, true
}
