"""Host-side readers of other projects' formats; their packages are optional."""
