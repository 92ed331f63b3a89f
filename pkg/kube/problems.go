package kube

import (
	"fmt"
	"slices"
	"strings"
)

// Reasons of problems. They show in conditions and events.
const (
	reasonForbidden        = "Forbidden"
	reasonPoolKindMissing  = "PoolKindMissing"
	reasonPoolInOldGroup   = "PoolInOldGroup"
	reasonPoolNotFound     = "PoolNotFound"
	reasonPoolInvalid      = "PoolInvalid"
	reasonPickerRefMissing = "PickerRefMissing"
	reasonPickerNotService = "PickerRefNotService"
	reasonPickerNotFound   = "PickerServiceNotFound"
	reasonPickerPort       = "PickerPortNotFound"
	reasonPickerNotHTTP2   = "PickerPortNotHTTP2"
	reasonUnknownPort      = "UnknownActivePort"
	reasonRewriteInvalid   = "ModelRewriteInvalid"

	reasonNoReadyPods      = "NoReadyPods"
	reasonUnknownRole      = "UnknownRole"
	reasonConflictingRoles = "ConflictingRoles"
	reasonNoPrefill        = "NoPrefillWorkers"
	reasonNoDecode         = "NoDecodeWorkers"
	reasonDuplicateWorker  = "DuplicateWorker"

	reasonBlockSize   = "BlockSizeMismatch"
	reasonRole        = "RoleMismatch"
	reasonWorkerID    = "WorkerIDMismatch"
	reasonZMQ         = "EventsOverZMQ"
	reasonBadMetadata = "UnreadableMetadata"
)

// maxNames is the most names that one message has.
const maxNames = 10

// names writes names as a list for people: a, b and 3 more.
func names(list []string) string {
	if n := len(list); n > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNames], ", "), n-maxNames)
	}
	return strings.Join(list, ", ")
}

// groups collects names that have the same thing wrong, so that a hundred pods
// make one problem.
type groups[K comparable] struct {
	order []K
	names map[K][]string
}

func (g *groups[K]) add(key K, name string) {
	if g.names == nil {
		g.names = map[K][]string{}
	}
	if _, known := g.names[key]; !known {
		if len(g.order) == maxNames {
			return // more of the same kind would tell nothing new
		}
		g.order = append(g.order, key)
	}
	if !slices.Contains(g.names[key], name) {
		g.names[key] = append(g.names[key], name)
	}
}

// each calls f for every group, in the order in which they came up, with the list
// of its names as people read it.
func (g *groups[K]) each(f func(key K, names string)) {
	for _, key := range g.order {
		f(key, names(g.names[key]))
	}
}
