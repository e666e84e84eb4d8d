"""What `launch.compile` computes of a program that no device here executes."""
