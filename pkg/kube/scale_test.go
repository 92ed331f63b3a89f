package kube

const childVariable = "WARMPATH_KUBE_CHILD"

func child() int { return 0 }
