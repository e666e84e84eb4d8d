"""What `launch.doctor` looks at; each function yields lines for a person."""
