"""Sites and server: messages, steps, protocols and the engines that move them."""
