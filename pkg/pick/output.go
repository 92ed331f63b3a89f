package pick

// TracksOutput says whether blocks of the output count as it grows: whoever sees it
// pass then tells the reservation (load.Reservation.Output). It is a knob of the
// Dynamo model.
func (p *Picker) TracksOutput() bool {
	o := p.options.Load()
	return o.Model == Dynamo && o.Dynamo.TrackOutputBlocks
}
