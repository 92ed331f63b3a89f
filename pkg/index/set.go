package index

// Slot is a worker's column in the index, dense from 0. A slot belongs to one
// worker from Register to Drop and is given to another only long after.
type Slot uint16

// MaxWorkers bounds the workers one index holds.
const MaxWorkers = 4096

const wordBits = 64
