"""Models of DxDispatch, DirectML's command-line tool: read, checked, run."""
