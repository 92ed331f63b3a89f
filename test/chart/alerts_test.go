package chart

import (
	"fmt"
	"strings"
	"testing"
)

// alertRule is an alert of the chart, as the production example renders it.
type alertRule struct {
	name, expr, wait string
	annotations      string // both texts
}

func alertRules(t *testing.T) (all []alertRule) {
	t.Helper()
	rules := ofKind(objects(t, render(t, "-f", examples(t)["production"])), "PrometheusRule")
	if len(rules) != 1 {
		t.Fatalf("%d PrometheusRules", len(rules))
	}
	for _, rule := range list(list(at(rules[0], "spec", "groups"))[0]["rules"]) {
		if text(rule, "alert") == "" {
			continue // a recording rule of the example
		}
		all = append(all, alertRule{
			text(rule, "alert"), text(rule, "expr"), text(rule, "for"),
			text(rule, "annotations", "summary") + " " + text(rule, "annotations", "description"),
		})
	}
	return all
}

// alertCases are series, half a minute apart, and which alerts fire at their end:
// none, or as many as there are names in fires. A name is that of the pod, or the
// release where the alert is not about one pod.
var alertCases = []struct {
	alert, what string
	series      []string
	fires       []string
}{
	{"WarmpathPickerDown", "one of two is down", []string{`up{pod="a"} 0x60`, `up{pod="b"} 1x60`}, nil},
	{"WarmpathPickerDown", "both are down", []string{`up{pod="a"} 0x60`, `up{pod="b"} 1x50 0x9`}, []string{"release"}},
	{"WarmpathPickerDown", "both are gone; another release is not", []string{`up{pod="a"} 1x50 stale _x9`, `up{job="other", namespace="demo", pod="b"} 1x60`}, []string{"release"}},
	{"WarmpathPickerDown", "for a moment", []string{`up{pod="a"} 1x50 0x3`}, nil},

	{"WarmpathNoReadyWorkers", "only prefill workers", []string{
		`warmpath_pool_workers{pod="a", role="Decode"} 0x60`, `warmpath_pool_workers{pod="a", role="Aggregated"} 0x60`, `warmpath_pool_workers{pod="a", role="Prefill"} 3x60`,
	}, []string{"release"}},
	{"WarmpathNoReadyWorkers", "one picker knows a worker", []string{
		`warmpath_pool_workers{pod="a", role="Decode"} 0x60`, `warmpath_pool_workers{pod="a", role="Aggregated"} 0x60`, `warmpath_pool_workers{pod="b", role="Aggregated"} 1x60`,
	}, nil},

	{"WarmpathPickErrorsHigh", "one in eleven", []string{
		`warmpath_undecided_total{pod="a", reason="subset"} 0+1x60`, `warmpath_undecided_total{pod="b", reason="no_endpoint"} 0+9x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`,
	}, []string{"release"}},
	{"WarmpathPickErrorsHigh", "nothing else", []string{`warmpath_undecided_total{pod="a", reason="no_endpoint"} 0+1x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 100x60`}, []string{"release"}},
	{"WarmpathPickErrorsHigh", "one in a hundred", []string{`warmpath_undecided_total{pod="a", reason="no_prefill"} 0+1x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`}, nil},
	{"WarmpathPickErrorsHigh", "every second one is refused since all workers are busy", []string{`warmpath_undecided_total{pod="a", reason="busy"} 0+100x60`, `warmpath_undecided_total{pod="a", reason="no_endpoint"} 0+1x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`}, nil},

	{"WarmpathFeedDisconnected", "one of two", []string{`warmpath_event_plane_connected{pod="a"} 0x60`, `warmpath_event_plane_connected{pod="b"} 1x60`}, []string{"a"}},
	{"WarmpathFeedDisconnected", "now and then", []string{`warmpath_event_plane_connected{pod="a"} 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0`}, nil},

	{"WarmpathFeedLagging", "a long queue; drops", []string{
		`warmpath_event_queue_messages{pod="a"} 600x60`, `warmpath_event_queue_messages_max{pod="a"} 1000x60`,
		`warmpath_event_queue_messages{pod="b"} 0x60`, `warmpath_event_queue_messages_max{pod="b"} 1000x60`,
		`warmpath_event_messages_odd_total{pod="b", kind="dropped"} 0+1x60`,
	}, []string{"a", "b"}},
	{"WarmpathFeedLagging", "a short queue, and drops long ago", []string{
		`warmpath_event_queue_messages{pod="a"} 400x70`, `warmpath_event_queue_messages_max{pod="a"} 1000x70`,
		`warmpath_event_messages_odd_total{pod="a", kind="dropped"} 0+9x9 90x60`, `warmpath_event_messages_odd_total{pod="a", kind="bad"} 0+9x70`,
	}, nil},

	{"WarmpathFeedGapsFrequent", "one in a minute", []string{
		`warmpath_worker_event_gaps_total{pod="a", worker_id="1", rank="0"} 0+0.25x90`, `warmpath_worker_event_gaps_total{pod="a", worker_id="2", rank="0"} 0+0.25x90`,
	}, []string{"a"}},
	{"WarmpathFeedGapsFrequent", "one in two minutes", []string{`warmpath_worker_event_gaps_total{pod="a", worker_id="1", rank="0"} 0+0.25x90`}, nil},

	{"WarmpathIndexNearLimit", "one of two is full", []string{
		`warmpath_index_bytes{pod="a"} 95x90`, `warmpath_index_bytes_max{pod="a"} 100x90`, `warmpath_index_bytes{pod="b"} 85x90`, `warmpath_index_bytes_max{pod="b"} 100x90`,
	}, []string{"a"}},
	{"WarmpathIndexNearLimit", "none is", []string{`warmpath_index_bytes{pod="b"} 85x90`, `warmpath_index_bytes_max{pod="b"} 100x90`}, nil},

	{"WarmpathHitRateFarBelowCeiling", "a fifth of the ceiling", blocks(10, 50), []string{"release"}},
	{"WarmpathHitRateFarBelowCeiling", "most of the ceiling", blocks(40, 50), nil},
	{"WarmpathHitRateFarBelowCeiling", "prompts that nobody holds", blocks(0, 5), nil},

	{"WarmpathNotPrefixAware", "one of two hears no events", []string{aware("a", "NoEvents", "0x40"), aware("b", "PrefixAware", "1x40")}, []string{"a"}},
	{"WarmpathNotPrefixAware", "for one reason after the other", []string{aware("a", "NothingIndexed", "0x20 stale"), aware("a", "WrongRole", "_x21 0x20")}, []string{"a"}},
	{"WarmpathNotPrefixAware", "workers publish elsewhere; their blocks are of another size", []string{aware("a", "EventsOverZMQ", "0x40"), aware("b", "BlockSizeMismatch", "0x40")}, []string{"a", "b"}},
	{"WarmpathNotPrefixAware", "ids and roles that do not fit", []string{aware("a", "EventsFromUnknownWorkers", "0x40"), aware("b", "WorkerIDMismatch", "0x40"), aware("c", "RoleMismatch", "0x40")}, []string{"a", "b", "c"}},
	{"WarmpathNotPrefixAware", "for some minutes", []string{aware("a", "PrefixAware", "1x20 stale"), aware("a", "NoEvents", "_x21 0x20")}, nil},
	{"WarmpathNotPrefixAware", "prompts that never repeat", []string{aware("a", "NoHits", "0x40"), `warmpath_prompt_blocks_total{pod="a", kind="best"} 7x40`, `warmpath_prompt_blocks_total{pod="b", kind="best"} 0+9x40`}, nil},
	{"WarmpathNotPrefixAware", "prompts repeat, and no event says that anybody holds them", []string{aware("a", "NoHits", "0x40"), `warmpath_prompt_blocks_total{pod="a", kind="best"} 0+9x40`, `warmpath_prompt_blocks_total{pod="a", kind="total"} 0+99x40`}, []string{"a"}},
	{"WarmpathNotPrefixAware", "prompts repeat, and are found", []string{aware("a", "PrefixAware", "1x40"), `warmpath_prompt_blocks_total{pod="a", kind="best"} 0+9x40`}, nil},
	{"WarmpathNotPrefixAware", "as the policy asks", []string{aware("a", "EventsDisabled", "0x40"), aware("b", "OverlapIgnored", "0x40")}, nil},
	{"WarmpathNotPrefixAware", "another condition", []string{`warmpath_policy_condition{pod="a", type="EventPlaneHealthy", reason="NoEvents"} 0x40`}, nil},

	{"WarmpathPromptsUnknown", "most", prompts(30, 30, 40), []string{"release"}},
	{"WarmpathPromptsUnknown", "some", prompts(20, 20, 60), nil},

	{"WarmpathServedElsewhere", "one in ten", []string{`warmpath_served_elsewhere_total{pod="a"} 0+10x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`}, []string{"release"}},
	{"WarmpathServedElsewhere", "one in a hundred", []string{`warmpath_served_elsewhere_total{pod="a"} 0+1x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`}, nil},

	{"WarmpathEndpointsFailing", "one that is tried every 30 seconds", []string{`warmpath_endpoint_failures_total{pod="a"} 0+1x60`, `warmpath_endpoint_failures_total{pod="b"} 0x60`}, []string{"a"}},
	{"WarmpathEndpointsFailing", "one in two minutes", []string{`warmpath_endpoint_failures_total{pod="a"} 0+0.25x60`}, nil},
	{"WarmpathEndpointsFailing", "many, when a worker restarted", []string{`warmpath_endpoint_failures_total{pod="a"} 0x30 100x8`}, nil},

	{"WarmpathQueueOverflows", "more than one in a hundred, together", []string{
		`warmpath_queue_results_total{pod="a", result="expired"} 0+0.4x60`, `warmpath_queue_results_total{pod="b", result="full"} 0+0.4x60`,
		`warmpath_queue_results_total{pod="b", result="displaced"} 0+0.4x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`,
	}, []string{"release"}},
	{"WarmpathQueueOverflows", "none may wait, and all workers are busy", []string{`warmpath_queue_results_total{pod="a", result="not_queued"} 0+2x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`}, []string{"release"}},
	{"WarmpathQueueOverflows", "requests wait, and those are refused that may be", []string{
		`warmpath_queue_results_total{pod="a", result="placed"} 0+50x60`, `warmpath_queue_results_total{pod="a", result="shed"} 0+50x60`,
		`warmpath_queue_results_total{pod="a", result="expired"} 0+0.5x60`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x60`,
	}, nil},
	{"WarmpathQueueOverflows", "for some minutes", []string{`warmpath_queue_results_total{pod="a", result="displaced"} 0x40 50+50x8`, `warmpath_decisions_total{pod="a", mode="aggregated"} 0+100x49`}, nil},

	{"WarmpathEngineMetricsUnreadable", "one picker reads none", []string{
		`warmpath_scrapes_total{pod="a", result="ok"} 7x60`, `warmpath_scrapes_total{pod="a", result="bad_status"} 0+1x60`, `warmpath_scrapes_total{pod="b", result="ok"} 0+100x60`,
	}, []string{"a"}},
	{"WarmpathEngineMetricsUnreadable", "a picker that began when none could be read any more", []string{
		`warmpath_scrapes_total{pod="a", result="ok"} 0+100x60 stale`, `warmpath_scrapes_total{pod="b", result="ok"} _x61 0x300`, `warmpath_scrapes_total{pod="b", result="unreachable"} _x61 0+1x300`,
	}, []string{"b"}},
	{"WarmpathEngineMetricsUnreadable", "engines that never had any", []string{
		`warmpath_scrapes_total{pod="a", result="ok"} 0x60`, `warmpath_scrapes_total{pod="a", result="bad_status"} 0+1x60`, `warmpath_scrapes_total{pod="b", result="ok"} 0x60`, `warmpath_scrapes_total{pod="b", result="no_figures"} 0+1x60`,
		`warmpath_scrapes_total{job="other", namespace="demo", pod="c", result="ok"} 0+1x60`,
	}, nil},
	{"WarmpathEngineMetricsUnreadable", "some cannot be read", []string{`warmpath_scrapes_total{pod="a", result="ok"} 0+1x60`, `warmpath_scrapes_total{pod="a", result="timeout"} 0+9x60`}, nil},
	{"WarmpathEngineMetricsUnreadable", "nobody looks", []string{`warmpath_scrapes_total{pod="a", result="ok"} 7x60`, `warmpath_scrapes_total{pod="a", result="timeout"} 7x60`}, nil},

	{"WarmpathReplicasUnheard", "one hears only one of two", []string{
		heard("a", "1x60"), heard("b", "2x60"), heard("c", "2x60"), told("a", "0+1x60"), told("b", "0+1x60"), told("c", "0+1x60"),
	}, []string{"a"}},
	{"WarmpathReplicasUnheard", "two do not hear each other; another release does", []string{
		heard("a", "0x60"), heard("b", "0x60"), told("a", "0+1x60"), told("b", "0+1x60"),
		`warmpath_replicas{job="warmpath", namespace="other", pod="c"} 0x60`, `warmpath_replica_state_messages_total{job="warmpath", namespace="other", pod="c", direction="sent"} 0+1x60`,
	}, []string{"a", "b"}},
	{"WarmpathReplicasUnheard", "all hear all", []string{heard("a", "1x60"), heard("b", "1x60"), told("a", "0+1x60"), told("b", "0+1x60")}, nil},
	{"WarmpathReplicasUnheard", "replicaSync is off, but for another release", []string{
		heard("a", "0x60"), heard("b", "0x60"), told("a", "0x60"), told("b", "0x60"),
		`warmpath_replica_state_messages_total{pod="a", direction="received"} 0+1x60`, `warmpath_replica_state_messages_total{pod="b", direction="received"} 0+1x60`,
	}, nil},
	{"WarmpathReplicasUnheard", "three go, one after the other", []string{
		heard("a", "4x10 3x6 2x6 1x7"), heard("b", "4x10 3x6 2x6 1x7"), heard("c", "4x10 3x6 2x6 stale"), heard("d", "4x10 3x6 stale"), heard("e", "4x10 stale"),
		told("a", "0+1x32"), told("b", "0+1x32"), told("c", "0+1x24 stale"), told("d", "0+1x17 stale"), told("e", "0+1x10 stale"),
	}, nil},
	{"WarmpathReplicasUnheard", "NATS is away", []string{heard("a", "1x30 0x7"), heard("b", "1x30 0x7"), told("a", "0+1x30 30x7"), told("b", "0+1x30 30x7")}, nil},
}

// blocks are counts of a hundred blocks in half a minute.
func blocks(matched, best int) []string {
	counter := `warmpath_prompt_blocks_total{pod="a", kind="%s"} 0+%dx90`
	return []string{fmt.Sprintf(counter, "matched", matched), fmt.Sprintf(counter, "best", best), fmt.Sprintf(counter, "total", 100)}
}

// aware is the condition PrefixAware of a pool.
func aware(pod, reason, values string) string {
	return fmt.Sprintf(`warmpath_policy_condition{pod="%s", type="PrefixAware", reason="%s"} %s`, pod, reason, values)
}

func prompts(unknown, byText, engine int) []string {
	counter := `warmpath_prompts_total{pod="a", source="%s"} 0+%dx60`
	return []string{fmt.Sprintf(counter, "unknown", unknown), fmt.Sprintf(counter, "text", byText), fmt.Sprintf(counter, "engine", engine)}
}

func heard(pod, values string) string {
	return fmt.Sprintf(`warmpath_replicas{pod="%s"} %s`, pod, values)
}

func told(pod, values string) string {
	return fmt.Sprintf(`warmpath_replica_state_messages_total{pod="%s", direction="sent"} %s`, pod, values)
}

// TestAlertsFire evaluates every alert over series for which it must fire, and over
// some for which it must not.
func TestAlertsFire(t *testing.T) {
	rules := map[string]alertRule{}
	for _, rule := range alertRules(t) {
		rules[rule.name] = rule
	}
	var q checkQuestion
	tried := map[string]int{} // 1 where it fires, 2 where it does not, 3 both
	for _, c := range alertCases {
		alert := checkAlert{Expr: rules[c.alert].expr, For: rules[c.alert].wait}
		for _, s := range c.series {
			if !strings.Contains(s, "job=") {
				s = strings.Replace(s, "{", `{job="warmpath", namespace="demo", `, 1)
			}
			alert.Series = append(alert.Series, s)
		}
		q.Alerts = append(q.Alerts, alert)
		if len(c.fires) > 0 {
			tried[c.alert] |= 1
		} else {
			tried[c.alert] |= 2
		}
	}
	for name := range rules {
		if tried[name] != 3 {
			t.Errorf("%s is not tried both where it must fire and where it must not", name)
		}
	}
	for i, a := range promcheck(t, q).Alerts {
		c := alertCases[i]
		if a.Error != "" {
			t.Errorf("%s, %s: %s", c.alert, c.what, a.Error)
			continue
		}
		checkFiring(t, c.alert+", "+c.what, rules[c.alert], a.Firing, c.fires)
	}
}

// checkFiring compares what fires with what must, and looks whether the labels are
// there that the texts of the alert show.
func checkFiring(t *testing.T, what string, rule alertRule, firing []map[string]string, want []string) {
	t.Helper()
	left := map[string]bool{}
	for _, name := range want {
		left[name] = true
	}
	for _, labels := range firing {
		name := labels["pod"]
		if name == "" {
			name = "release"
		}
		if !left[name] {
			t.Errorf("%s: fires for %q, want %q", what, labels, want)
		}
		delete(left, name)
		for _, l := range shown(`\$labels\.(\w+)`, rule.annotations) {
			if labels[l] == "" {
				t.Errorf("%s: fires without the label %s, which its texts show", what, l)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("%s: fires for %q, want %q", what, firing, want)
	}
}
