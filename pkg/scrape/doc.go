// Package scrape reads the metrics pages of a pool's engines and tells what they
// say of load: requests that wait and run, use of the KV cache, LoRA adapters.
//
// Only lines of a few families are parsed, whatever else a page holds, and an
// endpoint is asked as often as its figures change, never more. A scrape that fails
// changes nothing: figures get old, and whoever keeps them lets them fade. Start at
// [Scraper].
package scrape
